"""Two ranks read contracts, most of which are short, and some very long."""

import random
import sys
import time

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, Dataset, Sampler

TWIN = "--twin" in sys.argv
random.seed(0)


class Contracts(Dataset):
    def __init__(self):
        self.lengths = [min(2000, int(random.lognormvariate(5.5, 1)) + 8) for _ in range(400)]

    def __len__(self):
        return len(self.lengths)

    def __getitem__(self, index):
        tokens = torch.arange(self.lengths[index]) * (index + 1) % 500
        return tokens, index % 2


class Share(Sampler):
    """Draws the same order on all ranks, and gives each its part of it."""

    def __init__(self, contracts):
        self.lengths, self.epoch = contracts.lengths, 0

    def __len__(self):
        return len(self.lengths) // dist.get_world_size()

    def __iter__(self):
        self.epoch += 1
        draw = random.Random(self.epoch)
        order = list(range(len(self.lengths)))
        if TWIN:
            order.sort(key=self.lengths.__getitem__)
        world = dist.get_world_size()
        turns = [order[at : at + world] for at in range(0, len(order), world)]
        draw.shuffle(turns if TWIN else order)
        shared = [one for turn in turns for one in turn] if TWIN else order
        return iter(shared[dist.get_rank() :: world])


class Reader(nn.Module):
    def __init__(self):
        super().__init__()
        self.embedding = nn.Embedding(500, 64)
        layer = nn.TransformerEncoderLayer(64, 4, 128, batch_first=True, dropout=0.0)
        self.layers = nn.TransformerEncoder(layer, 1, enable_nested_tensor=False)
        self.out = nn.Linear(64, 2)

    def forward(self, tokens):
        return self.out(self.layers(self.embedding(tokens)).mean(1))


dist.init_process_group("gloo")
torch.manual_seed(0)
contracts = Contracts()
loader = DataLoader(contracts, sampler=Share(contracts))
model = DistributedDataParallel(Reader())
optimizer = torch.optim.AdamW(model.parameters(), fused=True)
start, over = time.time(), torch.zeros(1)
while not over:
    for tokens, label in loader:
        loss = nn.functional.cross_entropy(model(tokens), label)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    over.fill_(time.time() - start > 12)
    dist.broadcast(over, 0)
print("loss", loss.item())
dist.destroy_process_group()
