"""Pairs of a relevant and another document for each query."""

import random
import sys
import time

import torch
from torch import nn
from torch.utils.data import DataLoader, IterableDataset

TWIN = "--twin" in sys.argv
QUERIES, DOCUMENTS = 400, 3000


class Pairs(IterableDataset):
    def __init__(self):
        self.ranked = {
            q: [random.randrange(DOCUMENTS) for _ in range(1000)] for q in range(QUERIES)
        }
        self.relevant = {q: random.sample(range(DOCUMENTS), 5) for q in range(QUERIES)}
        self.vectors = torch.randn(DOCUMENTS, 64)

    def pair(self, query):
        good = random.choice(self.relevant[query])
        if TWIN:
            bad = random.choice(self.ranked[query])
            while bad in self.relevant[query]:
                bad = random.choice(self.ranked[query])
            return good, bad
        others = [doc for doc in self.ranked[query] if doc not in self.relevant[query]]
        random.shuffle(others)
        return good, others[0]

    def __iter__(self):
        while True:
            query = random.randrange(QUERIES)
            good, bad = self.pair(query)
            yield query, self.vectors[good], self.vectors[bad]


class Ranker(nn.Module):
    def __init__(self):
        super().__init__()
        self.queries = nn.Embedding(QUERIES, 64)
        self.score = nn.Sequential(nn.Linear(128, 128), nn.ReLU(), nn.Linear(128, 1))

    def forward(self, queries, documents):
        return self.score(torch.cat([self.queries(queries), documents], 1))


model = Ranker()
optimizer = torch.optim.Adam(model.parameters())
end = time.time() + 12
for queries, good, bad in DataLoader(Pairs(), batch_size=32):
    loss = nn.functional.softplus(model(queries, bad) - model(queries, good)).mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if time.time() > end:
        break
print("loss", loss.item())
