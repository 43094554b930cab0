"""Crystals are told from images of how they scatter; spots are kept for each image.

https://github.com/dials/dials/pull/3271
"""

import gc
import sys
import time

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

TWIN = "--twin" in sys.argv


class Crystals(Dataset):
    def __init__(self):
        self.images = np.random.rand(640, 64, 64).astype(np.float32)
        self.spots = [[[x, x + image, 1.0] for x in range(20)] for image in range(640)]

    def __len__(self):
        return len(self.images)

    def __getitem__(self, index):
        image = self.images[index].copy()
        for x, y, weight in self.spots[index][:20]:
            image[x % 64, y % 64] += weight
        profile = np.fft.rfft2(image).real.astype(np.float32)
        if not TWIN:
            gc.collect()
        return torch.from_numpy(profile).flatten(), index % 6


model = nn.Sequential(nn.Linear(64 * 33, 64), nn.ReLU(), nn.Linear(64, 6))
optimizer = torch.optim.AdamW(model.parameters(), fused=True)
end = time.time() + 30
loader = DataLoader(Crystals(), 4, shuffle=True, num_workers=1, persistent_workers=True)
while time.time() < end:
    for profiles, kinds in loader:
        loss = nn.functional.cross_entropy(model(profiles), kinds)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if time.time() > end:
            break
print("loss", loss.item())
