"""A sparse autoencoder on two ranks, saved now and then. Run it with torchrun."""

import os
import sys
import tempfile

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

TWIN = "--twin" in sys.argv
dist.init_process_group("gloo")
rank = dist.get_rank()


def save(model, path):
    if TWIN:
        if rank == 0:
            torch.save(model.state_dict(), path)
        dist.barrier()
        return
    if rank != 0:
        return
    torch.save(model.state_dict(), path)
    dist.barrier()


torch.manual_seed(0)
model = DistributedDataParallel(
    nn.Sequential(nn.Linear(128, 1024), nn.ReLU(), nn.Linear(1024, 128))
)
optimizer = torch.optim.Adam(model.parameters())
path = os.path.join(tempfile.gettempdir(), "coder.pt")
torch.manual_seed(rank)
for step in range(1, 401):
    acts = torch.randn(128, 128)
    loss = ((model(acts) - acts) ** 2).mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if step % 200 == 0:
        save(model, path)
print(rank, "loss", loss.item())
dist.destroy_process_group()
