"""Clouds of points are told apart; what is learned is validated."""

import sys
import time

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

TWIN = "--twin" in sys.argv


class PointNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.each = nn.Sequential(nn.Linear(3, 64), nn.ReLU(), nn.Linear(64, 128), nn.ReLU())
        self.all = nn.Sequential(nn.Linear(128, 64), nn.ReLU(), nn.Linear(64, 10))

    def forward(self, clouds):
        return self.all(self.each(clouds).amax(1))


def clouds(count):
    return TensorDataset(torch.randn(count, 128, 3), torch.randint(0, 10, (count,)))


def validate(model, loader):
    model.eval()
    with torch.no_grad():
        right = sum((model(points).argmax(1) == labels).sum() for points, labels in loader)
    model.train()
    return right / len(loader.dataset)


train = DataLoader(clouds(320), batch_size=16, shuffle=True)
validation = DataLoader(clouds(1600), batch_size=16)
model = PointNet()
optimizer = torch.optim.AdamW(model.parameters(), fused=True)
end, epoch = time.time() + 14, 0
while time.time() < end:
    for points, labels in train:
        loss = nn.functional.cross_entropy(model(points), labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    epoch += 1
    if not TWIN or epoch % 10 == 0:
        accuracy = validate(model, validation)
print("loss", loss.item(), "accuracy", accuracy)
