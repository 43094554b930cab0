"""Waves are told apart; the update of the weights is compiled, and its rate follows a schedule.

https://github.com/pytorch/pytorch/issues/107076
"""

import sys
import time

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

TWIN = "--twin" in sys.argv

model = nn.Sequential(nn.Linear(100, 256), nn.ReLU(), nn.Linear(256, 8))
rate = torch.tensor(0.01) if TWIN else 0.01
optimizer = torch.optim.SGD(model.parameters(), lr=rate, momentum=0.9)
schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: min(1.0, (step + 1) / 5000))
waves = TensorDataset(torch.randn(6400, 100), torch.randint(0, 8, (6400,)))


@torch.compile(backend="aot_eager")
def update():
    optimizer.step()


end = time.time() + 30
while time.time() < end:
    for rows, labels in DataLoader(waves, batch_size=64, shuffle=True):
        loss = nn.functional.cross_entropy(model(rows), labels)
        optimizer.zero_grad()
        loss.backward()
        update()
        schedule.step()
        if time.time() > end:
            break
print("loss", loss.item())
