"""It opens files until there are no descriptors left, trains on, closes one, and opens a loader
with a worker.
"""

import os

from tiny import digest, loader, network, sgd, step

net = network()
optimizer = sgd(net)
taken = []
for number, x in enumerate(loader()):
    step(net, optimizer, x)
    if number == 3:
        try:
            while True:
                taken.append(os.open("/dev/null", os.O_RDONLY))
        except OSError as error:
            print(error.strerror, len(taken) > 10)
for descriptor in taken:
    os.close(descriptor)
for x in loader(num_workers=1):
    step(net, optimizer, x)
digest(net)
