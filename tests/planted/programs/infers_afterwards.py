"""A few steps, and then many forwards without gradients: a model that is tried out when its
training is over.
"""

import sys

import torch
from torch.utils.data import DataLoader, TensorDataset

torch.set_num_threads(1)
STEPS, FORWARDS = map(int, sys.argv[1:])

model = torch.nn.Sequential(*(torch.nn.Linear(512, 512) for _ in range(4)))
optimizer = torch.optim.SGD(model.parameters(), 1e-6)
for (batch,) in DataLoader(TensorDataset(torch.rand(256 * STEPS, 512)), batch_size=256):
    optimizer.zero_grad()
    model(batch).square().mean().backward()
    optimizer.step()
with torch.no_grad():
    for _ in range(FORWARDS):
        model(batch)
