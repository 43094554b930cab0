"""One training in five ways that `feedline scale` has to tell apart.

ways_to_scale.py SAID.json ddp|fsdp|metrics|alone|whole|first: ``metrics`` only all-reduces its
loss, ``alone`` calls no collective, ``whole`` gives each rank all samples, of ``first`` only rank 0
trains.
"""

import os
import sys

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.fsdp import fully_shard
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

SAMPLES, BATCH = 240, 4


def wrapped(model: nn.Module, way: str) -> nn.Module:
    if way == "fsdp":
        fully_shard(model)
        return model
    return nn.parallel.DistributedDataParallel(model) if way in ("ddp", "whole") else model


def main(way: str) -> None:
    if way not in ("alone", "first"):
        dist.init_process_group("gloo")
    if way == "first" and os.environ["RANK"] != "0":
        return
    model = wrapped(nn.Sequential(nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 1)), way)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    samples = TensorDataset(torch.randn(SAMPLES, 64))
    divided = DistributedSampler(samples) if way in ("ddp", "fsdp", "metrics") else None
    for (batch,) in DataLoader(samples, BATCH, sampler=divided, shuffle=divided is None):
        loss = model(batch).square().mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        if way == "metrics":
            dist.all_reduce(loss.detach().clone())
    del model  # a reducer that outlives its group can hang (docs/communication-recording.md)
    if dist.is_initialized():
        dist.destroy_process_group()


if __name__ == "__main__":
    torch.set_num_threads(1)
    main(sys.argv[2])
