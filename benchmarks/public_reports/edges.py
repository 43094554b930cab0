"""Links of a graph are predicted; each sample is a link and a pair of nodes without one."""

import random
import sys
import time

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

TWIN = "--twin" in sys.argv
NODES = 2000


class Links(Dataset):
    def __init__(self):
        self.edges = [(random.randrange(NODES), random.randrange(NODES)) for _ in range(8000)]
        self.known = set(self.edges) if TWIN else self.edges

    def __len__(self):
        return len(self.edges)

    def unlinked(self):
        while True:
            pair = random.randrange(NODES), random.randrange(NODES)
            if pair not in self.known:
                return pair

    def __getitem__(self, index):
        return torch.tensor([self.edges[index], self.unlinked()])


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.nodes = nn.Embedding(NODES, 64)
        self.score = nn.Sequential(nn.Linear(64, 128), nn.ReLU(), nn.Linear(128, 1))

    def forward(self, pairs):
        return self.score(self.nodes(pairs).prod(2)).squeeze(2)


model = Model()
optimizer = torch.optim.Adam(model.parameters(), fused=True)
loader = DataLoader(Links(), batch_size=32, shuffle=True, num_workers=1, persistent_workers=True)
wanted = torch.tensor([1.0, 0.0])
end = time.time() + 12
while time.time() < end:
    for pairs in loader:
        scores = model(pairs)
        loss = nn.functional.binary_cross_entropy_with_logits(scores, wanted.expand_as(scores))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if time.time() > end:
            break
print("loss", loss.item())
