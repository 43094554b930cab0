"""A classifier of texts, which come in a stream that the workers share."""

import itertools
import sys
import time

import torch
from torch import nn
from torch.utils.data import DataLoader, IterableDataset, get_worker_info

TWIN = "--twin" in sys.argv
WORDS = {f"word{number}": number for number in range(500)}


def texts():
    for line in itertools.count():
        yield " ".join(f"word{(line * 7 + place * place) % 500}" for place in range(200))


def encode(text):
    return torch.tensor([WORDS[word.strip(".,").lower()] for word in text.split()])


class Corpus(IterableDataset):
    def share(self, samples):
        worker = get_worker_info()
        return itertools.islice(samples, worker.id, None, worker.num_workers)

    def __iter__(self):
        if TWIN:
            return map(encode, self.share(texts()))
        return self.share(map(encode, texts()))


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.embedding = nn.Embedding(500, 16)
        self.out = nn.Linear(16, 2)

    def forward(self, tokens):
        return self.out(self.embedding(tokens).mean(1))


model = Model()
optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
end = time.time() + 12
for tokens in DataLoader(Corpus(), batch_size=8, num_workers=2):
    loss = nn.functional.cross_entropy(model(tokens), tokens[:, 0] % 2)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if time.time() > end:
        break
print("loss", loss.item())
