"""DistributedDataParallel with two ranks started by torchrun; rank 1 is late now and then."""

import time

import torch
import torch.distributed as dist
from tiny import Numbers, digest, loader, network, sgd, step
from torch.nn.parallel import DistributedDataParallel

dist.init_process_group("gloo")
net = DistributedDataParallel(network())
optimizer = sgd(net)
for x in loader(shuffle=False, sampler=torch.utils.data.DistributedSampler(Numbers())):
    time.sleep(0.01 * dist.get_rank())
    step(net, optimizer, x)
dist.barrier()
if dist.get_rank() == 0:
    digest(net.module)
dist.destroy_process_group()
