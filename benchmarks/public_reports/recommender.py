"""Users and items with sampled negatives."""

import sys
import time

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

TWIN = "--twin" in sys.argv
USERS, ITEMS = 2000, 20000


class Interactions(Dataset):
    def __init__(self, negatives=16):
        self.pairs = np.random.randint(0, [USERS, ITEMS], (40000, 2))
        self.negatives = negatives

    def __len__(self):
        return len(self.pairs)

    def __getitem__(self, index):
        user, item = self.pairs[index]
        if TWIN:
            others = np.random.randint(0, ITEMS, self.negatives)
        else:
            others = np.random.choice(ITEMS, size=self.negatives, replace=False)
        return user, np.concatenate([[item], others])


class Factors(nn.Module):
    def __init__(self, width=32):
        super().__init__()
        self.users, self.items = nn.Embedding(USERS, width), nn.Embedding(ITEMS, width)
        self.mlp = nn.Sequential(nn.Linear(2 * width, 64), nn.ReLU(), nn.Linear(64, 1))

    def forward(self, users, items):
        pairs = [self.users(users)[:, None].expand(-1, items.shape[1], -1), self.items(items)]
        return self.mlp(torch.cat(pairs, -1)).squeeze(-1)


model = Factors()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
loader = DataLoader(Interactions(), batch_size=64, shuffle=True)
end = time.time() + 12
while time.time() < end:
    for users, items in loader:
        loss = nn.functional.cross_entropy(model(users, items), torch.zeros(len(users)).long())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if time.time() > end:
            break
print("loss", loss.item())
