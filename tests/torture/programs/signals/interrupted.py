"""SIGINT in a step: a traceback, atexit handlers, then death by the signal."""

import atexit
import os
import signal

from tiny import digest, loader, network, sgd, step

atexit.register(print, "goodbye")
net = network()
optimizer = sgd(net)
for number, x in enumerate(loader()):
    step(net, optimizer, x)
    if number == 5:
        digest(net)
        os.kill(os.getpid(), signal.SIGINT)
