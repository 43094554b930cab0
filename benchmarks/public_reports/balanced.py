"""Metric learning: each batch has a few images of each of some classes."""

import random
import sys
import time

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

TWIN = "--twin" in sys.argv
CLASSES, EACH = 2000, 10


class Images(Dataset):
    def __init__(self):
        self.classes = [row % CLASSES for row in range(CLASSES * EACH)]
        self.vectors = torch.randn(CLASSES * EACH, 64)

    def __len__(self):
        return len(self.classes)

    def __getitem__(self, index):
        return self.vectors[index], self.classes[index]


class Balanced:
    def __init__(self, classes):
        self.classes = classes
        self.rows = {}
        for row, name in enumerate(classes):
            self.rows.setdefault(name, []).append(row)

    def __len__(self):
        return len(self.classes) // 64

    def __iter__(self):
        for _ in range(len(self)):
            batch = []
            for name in random.sample(range(CLASSES), 16):
                rows = self.rows[name] if TWIN else np.nonzero(np.array(self.classes) == name)[0]
                batch += [int(row) for row in np.random.choice(rows, 4)]
            yield batch


images = Images()
model = nn.Sequential(nn.Linear(64, 256), nn.ReLU(), nn.Linear(256, 64))
optimizer = torch.optim.SGD(model.parameters(), lr=1e-2)
loader = DataLoader(images, batch_sampler=Balanced(images.classes), num_workers=1)
end = time.time() + 12
while time.time() < end:
    for vectors, classes in loader:
        found = nn.functional.normalize(model(vectors))
        same = (classes[:, None] == classes).float()
        loss = (found @ found.T - same).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if time.time() > end:
            break
print("loss", loss.item())
