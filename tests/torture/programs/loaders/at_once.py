"""Datasets with __getitems__, named tuples, dicts, strings, numpy, nested batches, and a collate
that is a method.
"""

from typing import NamedTuple

import numpy as np
import torch
from tiny import digest, network, sgd, step


class Sample(NamedTuple):
    x: torch.Tensor
    name: str
    more: dict


class Rich(torch.utils.data.Dataset):
    def __len__(self):
        return 12

    def __getitems__(self, indices):
        return [
            Sample(torch.ones(4) * i, f"n{i}", {"y": np.float32(i), "z": [i, (i, 2.0)]})
            for i in indices
        ]

    def __getitem__(self, index):
        raise AssertionError("not one by one")


net = network()
optimizer = sgd(net)
for batch in torch.utils.data.DataLoader(Rich(), batch_size=4, num_workers=1):
    print(type(batch).__name__, batch.name, batch.more)
    step(net, optimizer, batch.x)
digest(net)
