"""Collectives under a mode of torch that sends them elsewhere, and after it. One rank of gloo."""

import torch
import torch.distributed as dist
import torch.distributed._tools.fake_collectives  # noqa: F401  what makes collectives of fake tensors
from torch._subclasses.fake_tensor import FakeTensorMode

if __name__ == "__main__":
    dist.init_process_group("gloo")
    real = torch.ones(4)
    dist.all_reduce(real)  # what the tap learns of it must not be taken for true of the next
    with FakeTensorMode():
        dist.all_reduce(torch.ones(4))
        dist.broadcast(torch.ones(4), 0)
    dist.all_reduce(real)
    assert real.tolist() == [1.0] * 4
    dist.destroy_process_group()
