"""Samplers of the user's own: a generator function, batches of changing sizes, weights, subsets,
one that raises.
"""

import torch
from tiny import Numbers, digest, network, sgd, step
from torch.utils import data


class Growing:
    def __iter__(self):
        for size in range(1, 6):
            yield list(range(size))


class Failing(data.Sampler):
    def __iter__(self):
        yield 1
        raise KeyError("no more")


net = network()
optimizer = sgd(net)
numbers = Numbers()
first, second = data.random_split(numbers, [0.25, 0.75])
for settings in (
    {"batch_sampler": Growing()},
    {"batch_size": 4, "sampler": data.WeightedRandomSampler([1.0] * 32, 8)},
    {"batch_size": 4, "sampler": data.SubsetRandomSampler(range(8))},
    {"batch_size": 4, "num_workers": 1, "sampler": [31, 30, 29]},
):
    for x in data.DataLoader(numbers, **settings):
        step(net, optimizer, x)
for x in data.DataLoader(
    data.ConcatDataset([first, data.Subset(second, [1, 2])]), batch_size=4, shuffle=True
):
    step(net, optimizer, x)
try:
    for x in data.DataLoader(numbers, sampler=Failing()):
        step(net, optimizer, x)
except KeyError as error:
    print("raised", error)
digest(net)
print(torch.initial_seed())
