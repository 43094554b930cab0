"""Iterable datasets: endless, shared among workers by get_worker_info, shorter than their length
says, with a length that warns.
"""

import itertools

import torch
from tiny import digest, network, sgd, step


class Stream(torch.utils.data.IterableDataset):
    def __init__(self, end=None, message=None):
        self.end, self.message = end, message

    def __iter__(self):
        info = torch.utils.data.get_worker_info()
        first, by = (info.id, info.num_workers) if info else (0, 1)
        for number in itertools.islice(itertools.count(first, by), self.end):
            yield torch.full((4,), number / 100)


class Sized(Stream):
    def __len__(self):
        return self.message


net = network()
optimizer = sgd(net)
for data, workers in (
    (Stream(), 2),
    (Stream(10), 0),
    (Stream(10), 3),
    (Sized(10, 5), 0),
    (Sized(4, 40), 1),
):
    batches = torch.utils.data.DataLoader(
        data, batch_size=4, num_workers=workers, drop_last=workers == 3
    )
    for x in itertools.islice(batches, 6):
        print(step(net, optimizer, x), len(x))
digest(net)
