"""Patches of volumes, deformed elastically."""

import sys
import time

import numpy as np
import torch
from scipy.ndimage import gaussian_filter, map_coordinates
from torch import nn
from torch.utils.data import DataLoader, Dataset

TWIN = "--twin" in sys.argv


def deform(volume, strength=4.0):
    grid = np.meshgrid(*[np.arange(n) for n in volume.shape], indexing="ij")
    if TWIN:
        return volume[:, ::-1].copy()
    moved = [axis + gaussian_filter(np.random.randn(*volume.shape), 3) * strength for axis in grid]
    return map_coordinates(volume, moved, order=3, mode="nearest")


class Patches(Dataset):
    def __init__(self):
        self.volumes = np.random.randn(200, 24, 24, 24).astype(np.float32)

    def __len__(self):
        return 20000

    def __getitem__(self, index):
        patch = deform(self.volumes[index % 200])
        return torch.from_numpy(patch)[None], index % 2


model = nn.Sequential(
    nn.Conv3d(1, 8, 3, 2), nn.ReLU(), nn.AdaptiveAvgPool3d(2), nn.Flatten(), nn.Linear(64, 2)
)
optimizer = torch.optim.Adam(model.parameters())
loader = DataLoader(Patches(), batch_size=4, shuffle=True, num_workers=2)
end = time.time() + 12
for patches, labels in loader:
    loss = nn.functional.cross_entropy(model(patches), labels)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if time.time() > end:
        break
print("loss", loss.item())
