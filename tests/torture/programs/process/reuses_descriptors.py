"""It redirects descriptors to its own files with dup2, including descriptors that others hold, and
reads the files back.
"""

import os

from tiny import digest, loader, network, sgd, step

net = network()
optimizer = sgd(net)
own = os.open("own", os.O_RDWR | os.O_CREAT)
steps = iter(loader(batch_size=2))
for _ in range(4):
    step(net, optimizer, next(steps))
for number in range(3, 64):
    if number != own:
        os.dup2(own, number)
for x in steps:
    step(net, optimizer, x)
    os.write(40, b"x")
print(os.pread(own, 100, 0))
digest(net)
