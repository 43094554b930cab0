"""Frames of molecular dynamics, some thousand in each file."""

import os
import sys
import tempfile
import time

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

TWIN = "--twin" in sys.argv
FOLDER = os.path.join(tempfile.gettempdir(), "frames")
if not os.path.isdir(FOLDER):
    os.makedirs(FOLDER)
    for i in range(4):
        np.save(f"{FOLDER}/coord{i}.npy", np.random.randn(4000, 300).astype(np.float32))


class Frames(Dataset):
    def __init__(self, folder):
        self.files = sorted(f"{folder}/{name}" for name in os.listdir(folder))

    def __len__(self):
        return 16000

    def load_set(self, path):
        return np.load(path, mmap_mode="r" if TWIN else None)

    def __getitem__(self, index):
        coord = self.load_set(self.files[index // 4000])
        frame = np.array(coord[index % 4000])
        return torch.from_numpy(frame), frame.sum()


model = nn.Sequential(nn.Linear(300, 256), nn.Tanh(), nn.Linear(256, 1))
optimizer = torch.optim.Adam(model.parameters())
loader = DataLoader(Frames(FOLDER), batch_size=16, shuffle=True, num_workers=1)
end = time.time() + 12
for coords, energies in loader:
    loss = nn.functional.mse_loss(model(coords).squeeze(1), energies)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if time.time() > end:
        break
print("loss", loss.item())
