"""What each of several players does next is learned from what they see.

https://github.com/entity-neural-network/incubator/pull/15
"""

import sys
import time

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

TWIN = "--twin" in sys.argv


def scores(model, views):
    if TWIN:
        return model(views)
    return torch.cat([model(view[None]) for view in views])


model = nn.Sequential(
    nn.Linear(80, 128), nn.Tanh(), nn.Linear(128, 128), nn.Tanh(), nn.Linear(128, 6)
)
optimizer = torch.optim.AdamW(model.parameters(), fused=True)
games = TensorDataset(torch.randn(3200, 80), torch.randint(0, 6, (3200,)))
end = time.time() + 20
while time.time() < end:
    for views, moves in DataLoader(games, batch_size=32, shuffle=True):
        loss = nn.functional.cross_entropy(scores(model, views), moves)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if time.time() > end:
            break
print("loss", loss.item())
