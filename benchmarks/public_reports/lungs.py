"""Outlines of lungs are drawn into pictures: the files of each are looked up by the beginning of their name.

https://github.com/milesial/Pytorch-UNet/issues/449
"""

import pathlib
import sys
import tempfile
import time

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

TWIN = "--twin" in sys.argv
SCANS = 300


class Lungs(Dataset):
    def __init__(self, folder):
        self.scans, self.masks = folder / "scans", folder / "masks"
        self.names = sorted(path.stem for path in self.scans.iterdir())
        self.mask_of = {path.stem[: -len("_mask")]: path for path in self.masks.iterdir()}

    def __len__(self):
        return len(self.names)

    def __getitem__(self, index):
        name = self.names[index]
        if TWIN:
            scan, mask = self.scans / f"{name}.npy", self.mask_of[name]
        else:
            scan = next(self.scans.glob(name + ".*"))
            mask = next(self.masks.glob(name + "_mask.*"))
        return torch.from_numpy(np.load(scan))[None], torch.from_numpy(np.load(mask))[None]


folder = pathlib.Path(tempfile.mkdtemp())
for part, ending in (("scans", ""), ("masks", "_mask")):
    (folder / part).mkdir()
    for number in range(SCANS):
        picture = np.random.rand(32, 32).astype(np.float32)
        np.save(folder / part / f"scan{number:05}{ending}.npy", picture)
model = nn.Sequential(nn.Conv2d(1, 8, 3, padding=1), nn.ReLU(), nn.Conv2d(8, 1, 3, padding=1))
optimizer = torch.optim.AdamW(model.parameters(), fused=True)
loader = DataLoader(Lungs(folder), batch_size=16, shuffle=True)
end = time.time() + 12
while time.time() < end:
    for scans, masks in loader:
        loss = nn.functional.binary_cross_entropy_with_logits(model(scans), masks)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
print("loss", loss.item())
