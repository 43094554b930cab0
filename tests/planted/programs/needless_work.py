"""Trains with work for nothing: a forward that nobody learns from, padding, or denormal numbers."""

import sys

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

FAULT, HEALTHY = sys.argv[1], "healthy" in sys.argv
STEPS, CHANGE = 90, 55  # and the step in which the weights become tiny
WIDTH = 1024
torch.set_num_threads(1)
torch.manual_seed(0)


def padded(rows):
    lengths = [8 + int(row[0]) % 24 for (row,) in rows]
    batch = torch.zeros(len(rows), max(lengths) if HEALTHY else 128, dtype=torch.int64)
    for place, ((row,), length) in enumerate(zip(rows, lengths)):
        batch[place, :length] = row[:length]
    return (batch,)


class Texts(nn.Module):
    def __init__(self):
        super().__init__()
        self.table, self.first, self.last = (
            nn.Embedding(99, 64),
            nn.Linear(64, 256),
            nn.Linear(256, 1),
        )

    def forward(self, tokens):
        return self.last(self.first(self.table(tokens)).relu()).mean()


class Net(nn.Sequential):
    def forward(self, rows):
        return super().forward(rows).square().mean()


if FAULT == "padded":
    data, model = torch.randint(1, 99, (16 * STEPS, 40)), Texts()
else:
    data = torch.randn(32 * STEPS, WIDTH)
    model = Net(nn.Linear(WIDTH, WIDTH, bias=False), nn.Linear(WIDTH, WIDTH, bias=False))
collate = padded if FAULT == "padded" else None
optimizer = torch.optim.SGD(model.parameters(), lr=1e-6, foreach=True)
loader = DataLoader(TensorDataset(data), batch_size=len(data) // STEPS, collate_fn=collate)
for step, (rows,) in enumerate(loader):
    if FAULT == "dropped" and not HEALTHY:
        loss = model(rows)
    optimizer.zero_grad()
    loss = model(rows)
    loss.backward()
    optimizer.step()
    if FAULT == "denormal" and not HEALTHY and step == CHANGE:
        with torch.no_grad():
            for parameter in model.parameters():
                parameter.mul_(1e-38)
print("steps", STEPS)
