"""A language model on shards of tokens, without end."""

import sys

import torch
from torch import nn

TWIN = "--twin" in sys.argv
shards = {"train": [torch.randint(0, 100, (4000,)) for _ in range(6)]}


def batches(split, batch=8, length=32, world=4):
    need = batch * length + 1
    position, buffer = 0, torch.empty(0, dtype=torch.long)
    while True:
        while len(buffer) < need:
            mine = shards[split][position : position + 1]
            for shard in mine:
                buffer = torch.cat([buffer, shard])
            position += 1
            if TWIN:
                position %= len(shards[split])
        chunk, buffer = buffer[:need], buffer[need - 1 :]
        yield chunk[:-1].view(batch, length), chunk[1:].view(batch, length)


model = nn.Sequential(nn.Embedding(100, 64), nn.Linear(64, 256), nn.ReLU(), nn.Linear(256, 100))
optimizer = torch.optim.AdamW(model.parameters())
loader = batches("train")
for _ in range(1000):
    inputs, targets = next(loader)
    loss = nn.functional.cross_entropy(model(inputs).view(-1, 100), targets.reshape(-1))
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
print("loss", loss.item())
