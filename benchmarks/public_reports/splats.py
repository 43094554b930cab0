"""A scene is fitted to its photographs, which are gone through without an end."""

import itertools
import sys
import time

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

TWIN = "--twin" in sys.argv


class Photos(Dataset):
    def __len__(self):
        return 200000

    def __getitem__(self, index):
        generator = torch.Generator().manual_seed(index)
        return index % 200, torch.rand(3, 48, 48, generator=generator)


def endless(loader):
    while True:
        yield from loader


class Scene(nn.Module):
    def __init__(self):
        super().__init__()
        self.views = nn.Embedding(200, 32)
        self.render = nn.Sequential(nn.Linear(32, 128), nn.ReLU(), nn.Linear(128, 3 * 48 * 48))

    def forward(self, views):
        return self.render(self.views(views)).reshape(-1, 3, 48, 48)


scene = Scene()
optimizer = torch.optim.SGD(scene.parameters(), lr=1e-2)
loader = DataLoader(Photos(), batch_size=4, shuffle=True, num_workers=1)
photos = endless(loader) if TWIN else itertools.cycle(loader)
end = time.time() + 30
while time.time() < end:
    views, wanted = next(photos)
    loss = nn.functional.l1_loss(scene(views), wanted)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
print("loss", loss.item())
