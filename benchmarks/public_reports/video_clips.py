"""Clips of frames from one HDF5 file; a small network predicts the action."""

import os
import sys
import tempfile
import time

import h5py
import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

TWIN = "--twin" in sys.argv
PATH = os.path.join(tempfile.gettempdir(), "clips.h5")
FRAMES, WIDTH = 60000, 24
if not os.path.exists(PATH):
    with h5py.File(PATH + ".new", "w") as file:
        file["frames"] = np.random.randint(0, 255, (FRAMES, WIDTH), dtype=np.uint8)
        file["actions"] = np.random.randint(0, 10, FRAMES)
    os.rename(PATH + ".new", PATH)


class Clips(Dataset):
    def __init__(self, path, length=128):
        self.path, self.length, self.file = path, length, None

    def __len__(self):
        return 4000

    def __getitem__(self, index):
        if self.file is None:
            self.file = h5py.File(self.path, "r")
            self.frames = self.file["frames"]
        start = (index * 7) % (FRAMES - 3 * self.length)
        if TWIN:
            clip = self.frames[start : start + 3 * self.length][::3]
        else:
            clip = self.frames[list(range(start, start + 3 * self.length, 3))]
        return torch.from_numpy(clip).float(), int(self.file["actions"][start])


model = nn.Sequential(nn.Flatten(), nn.Linear(128 * WIDTH, 64), nn.ReLU(), nn.Linear(64, 10))
optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
loader = DataLoader(
    Clips(PATH), batch_size=32, shuffle=True, num_workers=1, persistent_workers=True
)
end = time.time() + 12
while time.time() < end:
    for clips, actions in loader:
        loss = nn.functional.cross_entropy(model(clips / 255), actions)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if time.time() > end:
            break
print("loss", loss.item())
