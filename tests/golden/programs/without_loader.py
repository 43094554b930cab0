"""A loop without a loader, as nanoGPT's: the next batch is made row by row between a forward and
its backward.
"""

import numpy as np
import torch
from torch import nn

ROWS, LENGTH = 64, 32
TEXT = np.random.RandomState(0).randint(0, 60, 20_000).astype(np.uint16)


def get_batch() -> tuple[torch.Tensor, torch.Tensor]:
    at = torch.randint(len(TEXT) - LENGTH - 1, (ROWS,))
    x = torch.stack([torch.from_numpy(TEXT[i : i + LENGTH].astype(np.int64)) for i in at])
    y = torch.stack([torch.from_numpy(TEXT[i + 1 : i + 1 + LENGTH].astype(np.int64)) for i in at])
    return x, y


torch.set_num_threads(1)
torch.manual_seed(0)
model = nn.Sequential(nn.Embedding(60, 64), nn.Linear(64, 60))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
x, y = get_batch()
for _ in range(60):
    loss = nn.functional.cross_entropy(model(x).flatten(0, 1), y.flatten())
    x, y = get_batch()
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
