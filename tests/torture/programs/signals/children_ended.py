"""SIGCHLD is handled, and the handler reaps every child that ended, including those of loaders."""

import os
import signal
import subprocess
import sys

from tiny import digest, loader, network, train

reaped = []


def reap(*_):
    for pid in list(mine):
        try:
            if os.waitpid(pid, os.WNOHANG)[0]:
                mine.discard(pid)
                reaped.append(1)
        except ChildProcessError:
            mine.discard(pid)


mine = set()
signal.signal(signal.SIGCHLD, reap)
net = network()
for _ in range(3):
    mine.add(subprocess.Popen([sys.executable, "-S", "-c", "pass"]).pid)
    train(net, loader(num_workers=1))
while mine:
    reap()
print(len(reaped))
digest(net)
