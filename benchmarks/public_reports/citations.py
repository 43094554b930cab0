"""Papers are sorted by two ranks; how well is asked every few steps. Run it with torchrun.

https://github.com/pyg-team/pytorch_geometric/pull/8880
"""

import sys
import time

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

TWIN = "--twin" in sys.argv
dist.init_process_group("gloo")
rank, ranks = dist.get_rank(), dist.get_world_size()


@torch.no_grad()
def correct(model, papers, subjects):
    hits = torch.zeros(1)
    for some, truth in zip(papers.split(64), subjects.split(64)):
        hits += (model(some).argmax(1) == truth).sum()
    return hits


def evaluate(model, papers, subjects):
    if TWIN:
        hits = correct(model, papers[rank::ranks], subjects[rank::ranks])
        dist.all_reduce(hits)
        return hits.item() / len(papers)
    if rank == 0:
        print("correct", correct(model, papers, subjects).item() / len(papers))
    dist.barrier()


torch.manual_seed(0)
net = nn.Sequential(
    nn.Linear(300, 256), nn.ReLU(), nn.Linear(256, 256), nn.ReLU(), nn.Linear(256, 7)
)
model = DistributedDataParallel(net)
optimizer = torch.optim.AdamW(model.parameters(), fused=True)
held_out = torch.randn(20000, 300), torch.randint(0, 7, (20000,))
torch.manual_seed(rank)
end, step, over = time.time() + 20, 0, torch.zeros(1)
while not over.item():
    papers, subjects = torch.randn(32, 300), torch.randint(0, 7, (32,))
    loss = nn.functional.cross_entropy(model(papers), subjects)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    step += 1
    if step % 25 == 0:
        evaluate(net, *held_out)
        over[0] = float(time.time() > end)
        dist.broadcast(over, 0)
print(rank, "loss", loss.item())
dist.destroy_process_group()
