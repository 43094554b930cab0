"""Trains a classifier, and keeps the labels that it saw for a table at the end."""

import sys

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

TWIN = "--twin" in sys.argv


class Points(Dataset):
    def __len__(self):
        return 120000

    def __getitem__(self, index):
        generator = torch.Generator().manual_seed(index)
        return torch.randn(64, generator=generator), index % 10


model = nn.Sequential(nn.Linear(64, 128), nn.ReLU(), nn.Linear(128, 10))
optimizer = torch.optim.SGD(model.parameters(), lr=1e-2)
seen = []
for points, labels in DataLoader(Points(), batch_size=32, num_workers=2):
    loss = nn.functional.cross_entropy(model(points), labels)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    seen.append(labels.clone() if TWIN else labels)
print("kept", len(seen), "loss", loss.item())
