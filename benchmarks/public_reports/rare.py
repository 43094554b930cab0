"""Rare kinds of birds are shown more often; each epoch sees a part of all sounds.

https://github.com/pytorch/pytorch/issues/32221
"""

import sys
import time

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset, WeightedRandomSampler

TWIN = "--twin" in sys.argv
SOUNDS = 3_000_000


class Birds(Dataset):
    def __init__(self):
        self.sounds = torch.randn(1000, 128)

    def __len__(self):
        return SOUNDS

    def __getitem__(self, index):
        return self.sounds[index % 1000], index % 11


model = nn.Sequential(nn.Linear(128, 256), nn.ReLU(), nn.Linear(256, 11))
optimizer = torch.optim.AdamW(model.parameters(), fused=True)
sampler = WeightedRandomSampler(torch.rand(SOUNDS), 3200, replacement=TWIN)
end, steps = time.time() + 14, 0
while time.time() < end:
    for sounds, kinds in DataLoader(Birds(), batch_size=32, sampler=sampler):
        loss = nn.functional.cross_entropy(model(sounds), kinds)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        steps += 1
        if time.time() > end:
            break
print("loss", loss.item(), "steps", steps)
