"""Roofs are found on crops of aerial photographs, which are changed at random."""

import sys
import time

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset
from torchvision.transforms import v2

TWIN = "--twin" in sys.argv
CROP = v2.RandomCrop(96)
CHANGES = [v2.RandomHorizontalFlip(), v2.ColorJitter(0.3, 0.3, 0.3), v2.GaussianBlur(5)]


class Photos(Dataset):
    def __init__(self):
        self.photos = torch.randint(0, 256, (24, 3, 384, 384), dtype=torch.uint8)
        self.change = v2.Compose([CROP, *CHANGES] if TWIN else [*CHANGES, CROP])

    def __len__(self):
        return 40 * len(self.photos)

    def __getitem__(self, index):
        photo = self.change(self.photos[index % len(self.photos)])
        return photo.float() / 255, index % 2


model = nn.Sequential(
    nn.Conv2d(3, 16, 5, stride=4),
    nn.ReLU(),
    nn.Conv2d(16, 32, 3, stride=2),
    nn.ReLU(),
    nn.AdaptiveAvgPool2d(1),
    nn.Flatten(),
    nn.Linear(32, 2),
)
optimizer = torch.optim.AdamW(model.parameters(), fused=True)
loader = DataLoader(Photos(), batch_size=8, shuffle=True, num_workers=1, persistent_workers=True)
end = time.time() + 12
while time.time() < end:
    for photos, labels in loader:
        loss = nn.functional.cross_entropy(model(photos), labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if time.time() > end:
            break
print("loss", loss.item())
