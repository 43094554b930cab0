"""Data-parallel training that accumulates the gradients of eight batches."""

import contextlib
import sys
import time

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

TWIN = "--twin" in sys.argv
ACCUMULATE = 8

dist.init_process_group("gloo")
torch.manual_seed(0)
rows = TensorDataset(torch.randn(16000, 512), torch.randint(0, 10, (16000,)))
sampler = DistributedSampler(rows)
loader = DataLoader(rows, batch_size=16, sampler=sampler)
model = DistributedDataParallel(
    nn.Sequential(
        nn.Linear(512, 1024), nn.ReLU(), nn.Linear(1024, 1024), nn.ReLU(), nn.Linear(1024, 10)
    )
)
optimizer = torch.optim.SGD(model.parameters(), lr=1e-2)
start, epoch, over = time.time(), 0, torch.zeros(1)
while not over:
    sampler.set_epoch(epoch)
    epoch += 1
    for step, (inputs, labels) in enumerate(loader):
        last = step % ACCUMULATE == ACCUMULATE - 1
        with model.no_sync() if TWIN and not last else contextlib.nullcontext():
            loss = nn.functional.cross_entropy(model(inputs), labels) / ACCUMULATE
            loss.backward()
        if last:
            optimizer.step()
            optimizer.zero_grad()
    over.fill_(time.time() - start > 12)
    dist.broadcast(over, 0)
print("loss", loss.item())
dist.destroy_process_group()
