"""DistributedDataParallel over gloo with one rank, with a communication hook, no_sync and a
ZeroRedundancyOptimizer.
"""

import os

import torch
import torch.distributed as dist
from tiny import digest, loader, network
from torch.distributed.optim import ZeroRedundancyOptimizer
from torch.nn.parallel import DistributedDataParallel

dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
net = DistributedDataParallel(network())
calls = []


def hook(state, bucket):
    calls.append(bucket.index())
    work = torch.futures.Future()
    work.set_result(bucket.buffer())
    return work


net.register_comm_hook(None, hook)
optimizer = ZeroRedundancyOptimizer(net.parameters(), torch.optim.SGD, lr=0.1)
for number, x in enumerate(loader()):
    if number % 2:
        with net.no_sync():
            net(x).square().mean().backward()
        continue
    net(x).square().mean().backward()
    optimizer.step()
    optimizer.zero_grad()
print(calls, os.environ.get("RANK"))
digest(net.module)
dist.destroy_process_group()
