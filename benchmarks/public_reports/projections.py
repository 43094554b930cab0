"""A convolutional network on simulated projections."""

import sys
import time

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

TWIN = "--twin" in sys.argv


class Projections(Dataset):
    def __init__(self):
        self.images = np.random.rand(512, 1, 48, 48)
        if TWIN:
            self.images = self.images.astype(np.float32)

    def __len__(self):
        return len(self.images)

    def __getitem__(self, index):
        return torch.from_numpy(self.images[index]), index % 6


model = nn.Sequential(
    nn.Conv2d(1, 16, 3),
    nn.ReLU(),
    nn.Conv2d(16, 32, 3, 2),
    nn.ReLU(),
    nn.Flatten(),
    nn.LazyLinear(6),
)
model(torch.zeros(1, 1, 48, 48))
if not TWIN:
    model = model.double()
optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
loader = DataLoader(Projections(), batch_size=16, shuffle=True)
end = time.time() + 12
while time.time() < end:
    for images, poses in loader:
        loss = nn.functional.cross_entropy(model(images), poses)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if time.time() > end:
            break
print("loss", loss.item())
