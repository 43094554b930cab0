"""Children of os.fork end by os._exit, by an exception, by sys.exit with a text, by a signal, and
by falling off the end.
"""

import os
import signal
import sys

from tiny import digest, loader, network, sgd, step

net = network()
optimizer = sgd(net)


def child(number):
    if number == 0:
        os._exit(7)
    if number == 1:
        raise LookupError("in the child")
    if number == 2:
        sys.exit("a text")
    if number == 3:
        os.kill(os.getpid(), signal.SIGKILL)


for number, x in enumerate(loader(batch_size=8)):
    step(net, optimizer, x)
    sys.stdout.flush()
    pid = os.fork()
    if pid == 0:
        child(number)
        sys.exit()
    print("child", number, os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))
digest(net)
