"""Persistent workers over three epochs, prefetching, out of order, with a dataset that counts in
its worker.
"""

import torch
from tiny import digest, network, sgd, step


class Counting(torch.utils.data.Dataset):
    made = 0

    def __len__(self):
        return 8

    def __getitem__(self, index):
        Counting.made += 1
        return torch.full((4,), Counting.made / 8)


net = network()
optimizer = sgd(net)
for settings in (
    {"persistent_workers": True},
    {"prefetch_factor": 5},
    {"in_order": False, "num_workers": 1},
):
    batches = torch.utils.data.DataLoader(
        Counting(), **{"batch_size": 2, "num_workers": 2, **settings}
    )
    for _ in range(3):
        for x in batches:
            print(step(net, optimizer, x), x[:, 0].tolist())
digest(net)
