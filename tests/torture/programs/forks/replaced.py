"""os.execv replaces the process by another training in the middle of an epoch."""

import os
import sys

from tiny import digest, loader, network, sgd, step

net = network()
optimizer = sgd(net)
for number, x in enumerate(loader()):
    step(net, optimizer, x)
    if number == 4 and len(sys.argv) == 1:
        digest(net)
        os.execv(sys.executable, [sys.executable, sys.argv[0], "again"])
digest(net)
