"""Patches are cut from volumes, more of them where tumors are.

https://github.com/neuro-ml/deep_pipe/pull/57
"""

import sys
import time

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

TWIN = "--twin" in sys.argv
SIDE, PATCH = 64, 8


class Patches(Dataset):
    def __init__(self):
        self.volume = np.random.rand(SIDE + PATCH, SIDE + PATCH, SIDE + PATCH).astype(np.float32)
        chances = np.random.rand(SIDE**3)
        self.chances = chances / chances.sum()
        self.summed = self.chances.cumsum()

    def __len__(self):
        return 3200

    def place(self):
        if TWIN:
            place = np.searchsorted(self.summed, np.random.rand() * self.summed[-1])
        else:
            place = np.random.choice(SIDE**3, p=self.chances)
        return np.unravel_index(place, (SIDE, SIDE, SIDE))

    def __getitem__(self, index):
        x, y, z = self.place()
        patch = self.volume[x : x + PATCH, y : y + PATCH, z : z + PATCH]
        return torch.from_numpy(patch.copy()), index % 2


model = nn.Sequential(
    nn.Flatten(), nn.Linear(PATCH**3, 256), nn.ReLU(), nn.Linear(256, 256), nn.ReLU()
)
model.append(nn.Linear(256, 2))
optimizer = torch.optim.AdamW(model.parameters(), fused=True)
loader = DataLoader(Patches(), batch_size=16, num_workers=1, persistent_workers=True)
end, steps = time.time() + 14, 0
while time.time() < end:
    for patches, tumors in loader:
        loss = nn.functional.cross_entropy(model(patches), tumors)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        steps += 1
        if time.time() > end:
            break
print("loss", loss.item(), "steps", steps)
