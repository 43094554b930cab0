"""Tensor parallelism: activations are all-reduced in forward, and their gradients in backward.

Called with RANK, WORLD_SIZE, ...; argument: unused.
"""

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor.parallel import (
    ColwiseParallel,
    RowwiseParallel,
    parallelize_module,
)

STEPS, BATCH, WIDTH = 20, 512, 256

dist.init_process_group("gloo")
mesh = init_device_mesh("cpu", (dist.get_world_size(),))
torch.manual_seed(0)
model = nn.Sequential(*(nn.Linear(WIDTH, WIDTH) for _ in range(4)))
styles = (ColwiseParallel, RowwiseParallel)
parallelize_module(model, mesh, {str(at): styles[at % 2]() for at in range(4)})
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
for batch in torch.utils.data.DataLoader(torch.randn(STEPS * BATCH, WIDTH), BATCH):
    model(batch.requires_grad_()).square().mean().backward()
    optimizer.step()
    optimizer.zero_grad()
dist.destroy_process_group()
