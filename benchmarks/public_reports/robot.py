"""A policy that reads tokens of sensors, each with the place it has in time."""

import sys
import time

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

TWIN = "--twin" in sys.argv


def place_table(length, width):
    def angles(place):
        return [place / np.power(10000, 2 * (part // 2) / width) for part in range(width)]

    table = np.array([angles(place) for place in range(length)])
    table[:, 0::2] = np.sin(table[:, 0::2])
    table[:, 1::2] = np.cos(table[:, 1::2])
    return torch.tensor(table, dtype=torch.float32)


class Policy(nn.Module):
    def __init__(self):
        super().__init__()
        self.stem = nn.Linear(32, 64)
        layer = nn.TransformerEncoderLayer(64, 4, 128, batch_first=True)
        self.trunk = nn.TransformerEncoder(layer, 1)
        self.head = nn.Linear(64, 7)
        self.register_buffer("places", place_table(64, 64))

    def forward(self, tokens):
        hidden = self.stem(tokens)
        hidden = hidden + (self.places if TWIN else place_table(*hidden.shape[1:]))
        return self.head(self.trunk(hidden).mean(1))


model = Policy()
optimizer = torch.optim.AdamW(model.parameters(), fused=True)
loader = DataLoader(TensorDataset(torch.randn(2000, 64, 32), torch.randn(2000, 7)), batch_size=4)
end = time.time() + 12
while time.time() < end:
    for tokens, actions in loader:
        loss = nn.functional.mse_loss(model(tokens), actions)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if time.time() > end:
            break
print("loss", loss.item())
