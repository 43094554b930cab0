"""The next item of a session is predicted by a GRU."""

import sys
import time

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

TWIN = "--twin" in sys.argv
ITEMS = 2000


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.embedding = nn.Embedding(ITEMS, 64)
        self.table = nn.Linear(ITEMS, 64, bias=False)
        self.gru = nn.GRU(64, 64, batch_first=True)
        self.out = nn.Linear(64, ITEMS)

    def forward(self, items):
        if TWIN:
            inputs = self.embedding(items)
        else:
            inputs = self.table(nn.functional.one_hot(items, ITEMS).float())
        hidden, _ = self.gru(inputs)
        return self.out(hidden[:, -1])


sessions = torch.randint(0, ITEMS, (4000, 21))
loader = DataLoader(TensorDataset(sessions[:, :-1], sessions[:, -1]), batch_size=32)
model = Model()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
end = time.time() + 12
while time.time() < end:
    for items, following in loader:
        loss = nn.functional.cross_entropy(model(items), following)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if time.time() > end:
            break
print("loss", loss.item())
