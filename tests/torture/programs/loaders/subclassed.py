"""DataLoader is subclassed: __iter__ wraps its base's, __init__ changes arguments, __len__ lies,
attributes are set late.
"""

import torch
from tiny import Numbers, digest, network, sgd, step
from torch.utils.data import DataLoader


class Endless(DataLoader):
    def __init__(self, data, **settings):
        super().__init__(data, **settings, drop_last=True)
        self.rounds = 2

    def __len__(self):
        return 3

    def __iter__(self):
        for _ in range(self.rounds):
            yield from super().__iter__()


net = network()
optimizer = sgd(net)
batches = Endless(Numbers(10), batch_size=4, num_workers=1)
for x in batches:
    print(step(net, optimizer, x), len(batches))
batches.num_workers = 0
batches.collate_fn = lambda xs: torch.stack(xs) * 2
for x in batches:
    print(step(net, optimizer, x))
try:
    batches.batch_size = 3
except ValueError as error:
    print(error)
digest(net)
