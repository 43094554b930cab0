"""Two gloo ranks, 20 steps of DistributedDataParallel and of fully_shard, first alone and then
recorded: says hashes of the parameters.
"""

import hashlib
import json
import sys
from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import DTensor
from torch.nn.parallel import DistributedDataParallel

from feedline.profiler.session.session import Session


def network():
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(32, 64), nn.ReLU(), nn.Dropout(0.1), nn.Linear(64, 8))


def trained(model, rank):
    torch.manual_seed(rank)
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
    for _ in range(20):
        model(torch.randn(16, 32)).square().mean().backward()
        optimizer.step()
        optimizer.zero_grad()
    parameters = [p.full_tensor() if isinstance(p, DTensor) else p for p in model.parameters()]
    drawn = torch.rand(1)
    return hashlib.sha256(
        b"".join(p.detach().numpy().tobytes() for p in [*parameters, drawn])
    ).hexdigest()


def both(rank):
    sharded = network()
    fully_shard(sharded[0])
    fully_shard(sharded)
    return {
        "ddp": trained(DistributedDataParallel(network(), bucket_cap_mb=0.01), rank),
        "fsdp": trained(sharded, rank),
    }


if __name__ == "__main__":
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    alone = both(rank)
    dist.barrier()
    session = Session(Path("run"), ["same_numbers"])
    recorded = both(rank)
    session.stop()
    with open(sys.argv[1], "w") as file:
        json.dump({"alone": alone, "recorded": recorded, "after": both(rank)}, file)
    dist.destroy_process_group()
