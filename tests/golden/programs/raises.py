"""Two ranks; the second one raises in its 13th step."""

import torch
import torch.distributed as dist
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

torch.set_num_threads(1)
dist.init_process_group("gloo")
model = nn.parallel.DistributedDataParallel(nn.Linear(64, 8))
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
for step, (x,) in enumerate(DataLoader(TensorDataset(torch.ones(96, 64)), 4)):
    if dist.get_rank() == 1 and step == 12:
        raise ValueError("the loss is not a number")
    optimizer.zero_grad()
    model(x).square().mean().backward()
    optimizer.step()
