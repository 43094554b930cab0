"""A small head is trained on features of a large array; a checkpoint has the last features too."""

import os
import sys
import tempfile
import time

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

TWIN = "--twin" in sys.argv
PATH = os.path.join(tempfile.gettempdir(), "crops.pt")

features, labels = torch.randn(20000, 512), torch.randint(0, 10, (20000,))
loader = DataLoader(TensorDataset(torch.arange(20000), labels), batch_size=64, shuffle=True)
model = nn.Sequential(nn.Linear(512, 256), nn.ReLU(), nn.Linear(256, 10))
optimizer = torch.optim.SGD(model.parameters(), lr=1e-2)


def save(step):
    prototypes = features[:10]
    if TWIN:
        prototypes = prototypes.clone()
    torch.save({"step": step, "model": model.state_dict(), "prototypes": prototypes}, PATH)


step, end = 0, time.time() + 15
while time.time() < end:
    for rows, classes in loader:
        loss = nn.functional.cross_entropy(model(features[rows]), classes)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        step += 1
        if step % 50 == 0:
            save(step)
        if time.time() > end:
            break
os.remove(PATH)
print("loss", loss.item())
