"""An unhandled SIGTERM in the middle of an epoch with workers."""

import os
import signal

from tiny import digest, loader, network, sgd, step

net = network()
optimizer = sgd(net)
for number, x in enumerate(loader(num_workers=2)):
    step(net, optimizer, x)
    if number == 5:
        digest(net)
        os.kill(os.getpid(), signal.SIGTERM)
