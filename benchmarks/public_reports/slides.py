"""Patches of many slides; each worker opens a slide when it first needs it."""

import functools
import sys
import time

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

TWIN = "--twin" in sys.argv


def open_slide(number):
    return np.full((160, 1024), number % 251, dtype=np.uint8)


opened = functools.lru_cache(maxsize=4 if TWIN else None)(open_slide)


class Patches(Dataset):
    def __init__(self, slides=20000, per_slide=40):
        self.slides, self.per_slide = slides, per_slide

    def __len__(self):
        return self.slides * self.per_slide

    def __getitem__(self, index):
        slide = opened(index // self.per_slide)
        patch = slide[(index % 5) * 32 :][:32, :32]
        return torch.from_numpy(patch / np.float32(255)), index % 2


model = nn.Sequential(nn.Flatten(), nn.Linear(1024, 1024), nn.ReLU(), nn.Linear(1024, 2))
optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
loader = DataLoader(Patches(), batch_size=64, num_workers=2)
end = time.time() + 24
for patches, labels in loader:
    loss = nn.functional.cross_entropy(model(patches), labels)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if time.time() > end:
        break
print("loss", loss.item())
