"""A linear probe on features; what belongs together is drawn to a center that moves along."""

import sys
import time

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

TWIN = "--twin" in sys.argv
data = TensorDataset(torch.randn(64000, 128), torch.randint(0, 10, (64000,)))
loader = DataLoader(data, batch_size=32, shuffle=True)
probe = nn.Linear(128, 64)
classify = nn.Linear(64, 10)
optimizer = torch.optim.SGD(probe.parameters(), lr=1e-3)
center = torch.zeros(64)
end = time.time() + 14
steps = 0
for features, labels in loader:
    embedded = probe(features)
    center = 0.99 * (center.detach() if TWIN else center) + 0.01 * embedded.mean(0)
    loss = nn.functional.cross_entropy(classify(embedded), labels)
    loss = loss + 0.1 * (embedded - center).pow(2).mean()
    optimizer.zero_grad()
    loss.backward(retain_graph=not TWIN)
    optimizer.step()
    steps += 1
    if time.time() > end:
        break
print(steps, "steps, loss", loss.item())
