"""What workers draw from torch, random and numpy; seeds by worker_init_fn and by a generator."""

import random

import numpy as np
import torch
from tiny import digest, network, sgd, step


class Drawn(torch.utils.data.Dataset):
    def __len__(self):
        return 12

    def __getitem__(self, index):
        return torch.tensor(
            [torch.rand(()).item(), random.random(), np.random.rand(), index / 12],
            dtype=torch.float32,
        )


def begin(worker):
    np.random.seed(torch.initial_seed() % 2**32)


net = network()
optimizer = sgd(net)
for settings in (
    {},
    {"worker_init_fn": begin},
    {"generator": torch.Generator().manual_seed(5)},
    {"num_workers": 0},
):
    for _ in range(2):
        for x in torch.utils.data.DataLoader(
            Drawn(), **{"batch_size": 4, "shuffle": True, "num_workers": 2, **settings}
        ):
            print(x.tolist(), step(net, optimizer, x))
digest(net)
