"""Spectra, each a data set of its own in an HDF5 file."""

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
PATH = os.path.join(tempfile.gettempdir(), "spectra.h5")
if not os.path.exists(PATH):
    with h5py.File(PATH + ".new", "w") as file:
        for i in range(400):
            file[f"s{i}"] = np.random.rand(16, 32).astype(np.float32)
    os.rename(PATH + ".new", PATH)


class Spectra(Dataset):
    def __init__(self, path):
        self.path, self.file = path, None

    def __len__(self):
        return 8000

    def __getitem__(self, index):
        if self.file is None:
            self.file = h5py.File(self.path, "r")
        spectrum = self.file[f"s{index % 400}"]
        if TWIN:
            spectrum = spectrum[:]
        return torch.tensor(spectrum), index % 3


model = nn.Sequential(nn.Flatten(), nn.Linear(512, 64), nn.ReLU(), nn.Linear(64, 3))
optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
loader = DataLoader(
    Spectra(PATH), batch_size=16, shuffle=True, num_workers=1, persistent_workers=True
)
end = time.time() + 12
while time.time() < end:
    for spectra, labels in loader:
        loss = nn.functional.cross_entropy(model(spectra), labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if time.time() > end:
            break
print("loss", loss.item())
