"""fully_shard (FSDP 2) over gloo with one rank."""

import torch
import torch.distributed as dist
from tiny import digest, loader, network, sgd, step
from torch.distributed.fsdp import fully_shard

dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
net = network()
mesh = dist.init_device_mesh("cpu", (1,))
fully_shard(net[0], mesh=mesh)
fully_shard(net, mesh=mesh)
optimizer = sgd(net)
for x in loader():
    print(step(net, optimizer, x))
digest(*(p.full_tensor() for p in net.parameters()), torch.zeros(1))
dist.destroy_process_group()
