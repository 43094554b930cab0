"""train_small.py LR"""

import sys

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

torch.set_num_threads(1)
model = nn.Linear(256, 8)
optimizer = torch.optim.SGD(model.parameters(), lr=float(sys.argv[1]))
for (x,) in DataLoader(TensorDataset(torch.ones(96, 256)), 4):
    optimizer.zero_grad()
    model(x).square().mean().backward()
    optimizer.step()
