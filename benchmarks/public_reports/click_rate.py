"""Click-through rate from hashed categories."""

import sys
import time

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

TWIN = "--twin" in sys.argv
ITEMS = 400_000


class ClickModel(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = nn.EmbeddingBag(ITEMS, 32, mode="mean", sparse=TWIN)
        self.tower = nn.Sequential(nn.Linear(32, 128), nn.ReLU(), nn.Linear(128, 1))

    def forward(self, categories):
        return self.tower(self.embed(categories)).squeeze(1)


model = ClickModel()
if TWIN:
    optimizers = [
        torch.optim.SparseAdam(model.embed.parameters(), lr=1e-3),
        torch.optim.Adam(model.tower.parameters(), lr=1e-3),
    ]
else:
    optimizers = [torch.optim.Adam(model.parameters(), lr=1e-3)]
data = TensorDataset(torch.randint(0, ITEMS, (20000, 20)), torch.randint(0, 2, (20000,)).float())
loader = DataLoader(data, batch_size=256, shuffle=True)
end = time.time() + 12
while time.time() < end:
    for categories, clicks in loader:
        loss = nn.functional.binary_cross_entropy_with_logits(model(categories), clicks)
        for optimizer in optimizers:
            optimizer.zero_grad()
        loss.backward()
        for optimizer in optimizers:
            optimizer.step()
        if time.time() > end:
            break
print("loss", loss.item())
