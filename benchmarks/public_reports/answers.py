"""Two ranks learn from answers of different length, dealt out in the order in which they come.

https://github.com/lightseekorg/TorchSpec/issues/13
"""

import random
import sys
import time

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader

TWIN = "--twin" in sys.argv


def dealt(lengths, ranks):
    """Numbers of answers, for each rank."""
    if not TWIN:
        return [range(rank, len(lengths), ranks) for rank in range(ranks)]
    order = sorted(range(len(lengths)), key=lambda number: lengths[number])
    random.Random(1).shuffle(pairs := list(zip(order[::2], order[1::2])))
    return list(zip(*pairs))


def scored(rows):
    """The only answer of a batch, once a server has scored it, which it does word by word."""
    time.sleep(len(rows[0]) / 10000)
    return rows[0]


dist.init_process_group("gloo")
torch.manual_seed(0)
rank, generator = dist.get_rank(), random.Random(0)
lengths = [generator.choice([20, 20, 20, 400]) for _ in range(1000)]
answers = [torch.randint(0, 500, (length,)) for length in lengths]
mine = [answers[number] for number in dealt(lengths, 2)[rank]]
model = nn.Sequential(nn.Embedding(500, 96), nn.Linear(96, 384), nn.ReLU(), nn.Linear(384, 500))
model = DistributedDataParallel(model)
optimizer = torch.optim.AdamW(model.parameters(), fused=True)
start, over = time.time(), torch.zeros(1)
while not over:
    for answer in DataLoader(mine, batch_size=1, collate_fn=scored):
        loss = nn.functional.cross_entropy(model(answer[:-1]), answer[1:])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    over.fill_(time.time() - start > 12)
    dist.broadcast(over, 0)
print("loss", loss.item())
dist.destroy_process_group()
