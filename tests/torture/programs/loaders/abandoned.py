"""Iterators are left midway, two run at once over one loader, one is kept to the end of the
program, one made in a generator.
"""

import gc

import torch
from tiny import digest, loader, network, sgd, step

net = network()
optimizer = sgd(net)
batches = loader(num_workers=2)
for _ in range(3):
    for number, x in enumerate(batches):
        step(net, optimizer, x)
        if number == 2:
            break
first, second = iter(batches), iter(batches)
for x, y in zip(first, second):
    step(net, optimizer, torch.cat([x, y]))
del first
gc.collect()


def forever():
    while True:
        yield from batches


for number, x in enumerate(forever()):
    step(net, optimizer, x)
    if number > 9:
        break
kept = iter(batches)
step(net, optimizer, next(kept))
digest(net)
