"""A model of words goes on from a checkpoint, and passes over the batches that it has learned from.

https://github.com/allenai/open-instruct/pull/681
"""

import random
import sys
import time

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

TWIN = "--twin" in sys.argv
BATCHES, DONE = 60, 40  # in an epoch, before the checkpoint
LETTERS = "abcdefghijklmnop"


class Lines(Dataset):
    def __init__(self):
        self.lines = ["".join(random.choices(LETTERS, k=300)) for _ in range(BATCHES * 16)]

    def __len__(self):
        return len(self.lines)

    def __getitem__(self, index):
        line = self.lines[index]
        counts = [line.count(one + other) for one in LETTERS for other in LETTERS]
        return torch.tensor(counts, dtype=torch.float32), len(set(line[:9]))


model = nn.Sequential(nn.Linear(256, 64), nn.ReLU(), nn.Linear(64, 17))
optimizer = torch.optim.AdamW(model.parameters(), fused=True)
loader = DataLoader(Lines(), batch_size=16, shuffle=True)
end, epoch = time.time() + 20, 0
while time.time() < end:
    for number, (counts, labels) in enumerate(loader):
        if number < DONE and (epoch == 0 or not TWIN):
            continue
        for _ in range(4):
            loss = nn.functional.cross_entropy(model(counts), labels)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        if time.time() > end:
            break
    epoch += 1
print("loss", loss.item())
