"""Readings of sensors come in long parts of a stream; rows wait in a buffer until a batch takes them.

https://github.com/uber/petastorm/pull/414
"""

import collections
import sys
import time

import torch
from torch import nn
from torch.utils.data import DataLoader, IterableDataset

TWIN = "--twin" in sys.argv


class Buffer:
    def __init__(self):
        self.rows = collections.deque() if TWIN else []

    def add(self, rows):
        self.rows.extend(rows)

    def take(self):
        return self.rows.popleft() if TWIN else self.rows.pop(0)


class Readings(IterableDataset):
    def __iter__(self):
        buffer, generator = Buffer(), torch.Generator().manual_seed(0)
        while True:
            part = torch.randn(300000, 16, generator=generator)
            buffer.add(part.unbind())
            while buffer.rows:
                row = buffer.take()
                yield row[:15], row[15:]


model = nn.Sequential(nn.Linear(15, 128), nn.ReLU(), nn.Linear(128, 1))
optimizer = torch.optim.AdamW(model.parameters(), fused=True)
end = time.time() + 12
for features, target in DataLoader(Readings(), batch_size=64):
    loss = nn.functional.mse_loss(model(features), target)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if time.time() > end:
        break
print("loss", loss.item())
