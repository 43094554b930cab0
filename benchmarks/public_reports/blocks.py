"""Two ranks; statistics of every block are collected for the log."""

import sys

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

TWIN = "--twin" in sys.argv
dist.init_process_group("gloo")
rank, world = dist.get_rank(), dist.get_world_size()


def collect(stats):
    everyone = [None] * world
    dist.all_gather_object(everyone, stats)
    return {key: sum(one[key] for one in everyone) / world for key in stats}


net = nn.Sequential(*[nn.Sequential(nn.Linear(64, 64), nn.ReLU()) for _ in range(8)])
model = DistributedDataParallel(net)
optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
torch.manual_seed(rank)
history = []
for step in range(600):
    x = torch.randn(64, 64)
    loss = (model(x) - x).pow(2).mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if not TWIN or step % 50 == 0:
        stats = {
            f"block{i}/{j}/weight_{k}": float(i + j)
            for i in range(8)
            for j in range(400)
            for k in "ab"
        }
        history.append(collect(stats)["block0/0/weight_a"])
print(rank, "loss", loss.item(), len(history))
dist.destroy_process_group()
