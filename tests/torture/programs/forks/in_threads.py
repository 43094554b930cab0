"""Threads fork while another thread trains."""

import os
import threading

from tiny import digest, loader, network, train

net = network()
codes = []


def forks():
    for number in range(5):
        pid = os.fork()
        if pid == 0:
            os._exit(number)
        codes.append(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))


thread = threading.Thread(target=forks)
thread.start()
train(net, loader(num_workers=1))
thread.join()
print(codes)
digest(net)
