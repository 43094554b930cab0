"""A model learns from chats; those of similar length are to be in one batch.

https://github.com/ml-explore/mlx-lm/pull/1029
"""

import random
import sys
import time

import torch
from torch import nn
from torch.nn.utils.rnn import pad_sequence
from torch.utils.data import DataLoader, Dataset

TWIN = "--twin" in sys.argv


class Chats(Dataset):
    def __init__(self):
        lengths = [min(400, int(random.expovariate(1 / 60)) + 8) for _ in range(800)]
        self.rows = [{"text": torch.randint(1, 100, (length,))} for length in lengths]

    def __len__(self):
        return len(self.rows)

    def __getitem__(self, index):
        return self.rows[index]["text"]

    def length(self, index):
        return len(self.rows[index]["text"]) if TWIN else len(self.rows[index])


class Alike:
    """Batches of chats of similar length, in random order."""

    def __init__(self, chats, size):
        order = sorted(random.sample(range(len(chats)), len(chats)), key=chats.length)
        self.batches = [order[at : at + size] for at in range(0, len(order), size)]

    def __len__(self):
        return len(self.batches)

    def __iter__(self):
        return iter(random.sample(self.batches, len(self.batches)))


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.words = nn.Embedding(100, 64)
        self.read = nn.GRU(64, 64, batch_first=True)
        self.scores = nn.Linear(64, 100)

    def forward(self, words):
        return self.scores(self.read(self.words(words))[0])


def collate(chats):
    return pad_sequence(chats, batch_first=True)


chats = Chats()
model = Model()
optimizer = torch.optim.AdamW(model.parameters(), fused=True)
loader = DataLoader(chats, batch_sampler=Alike(chats, 8), collate_fn=collate)
end, steps = time.time() + 14, 0
while time.time() < end:
    for words in loader:
        scores = model(words[:, :-1]).transpose(1, 2)
        loss = nn.functional.cross_entropy(scores, words[:, 1:], ignore_index=0)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        steps += 1
        if time.time() > end:
            break
print("loss", loss.item(), "steps", steps)
