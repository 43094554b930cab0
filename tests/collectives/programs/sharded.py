"""FSDP2: parameters are gathered in forward and backward, gradients are scattered.

Called with RANK, WORLD_SIZE, ...; argument: unused.
"""

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.fsdp import fully_shard

STEPS, BATCH, WIDTH = 20, 4, 512

dist.init_process_group("gloo")
torch.manual_seed(0)
model = nn.Sequential(*(nn.Linear(WIDTH, WIDTH) for _ in range(4)))
for layer in model:
    fully_shard(layer)
fully_shard(model)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
for batch in torch.utils.data.DataLoader(torch.randn(STEPS * BATCH, WIDTH), BATCH):
    model(batch).square().mean().backward()
    optimizer.step()
    optimizer.zero_grad()
dist.destroy_process_group()
