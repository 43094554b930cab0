"""A network whose weights decay to numbers that are nearly zero."""

import sys
import time

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

TWIN = "--twin" in sys.argv
if TWIN:
    torch.set_flush_denormal(True)

torch.manual_seed(0)
model = nn.Sequential(
    nn.Linear(256, 512), nn.ReLU(), nn.Linear(512, 512), nn.ReLU(), nn.Linear(512, 10)
)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9, weight_decay=2.0)
loader = DataLoader(
    TensorDataset(torch.randn(6400, 256), torch.randint(0, 10, (6400,))), batch_size=64
)
end = time.time() + 25
while time.time() < end:
    for inputs, labels in loader:
        loss = nn.functional.cross_entropy(model(inputs), labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if time.time() > end:
            break
print("loss", loss.item())
