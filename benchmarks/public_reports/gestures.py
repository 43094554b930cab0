"""Gestures of different speed are compared by the distances of all of their moments.

https://github.com/Maghoumi/pytorch-softdtw-cuda/pull/23
"""

import sys
import time

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

TWIN = "--twin" in sys.argv


def distances(guess, true):
    if TWIN:
        squares = guess.square().sum(2)[:, :, None] + true.square().sum(2)[:, None]
        return squares - 2 * guess @ true.transpose(1, 2)
    guess = guess.unsqueeze(2).expand(-1, -1, true.shape[1], -1)
    true = true.unsqueeze(1).expand(-1, guess.shape[1], -1, -1)
    return (guess - true).pow(2).sum(3)


class Nearest(nn.Module):
    """The soft minimum over the moments of the other, both ways."""

    def forward(self, guess, true):
        apart = distances(guess, true)
        return -(torch.logsumexp(-apart, 1).mean() + torch.logsumexp(-apart, 2).mean())


model = nn.Sequential(nn.Linear(24, 128), nn.ReLU(), nn.Linear(128, 24))
nearest = Nearest()
optimizer = torch.optim.AdamW(model.parameters(), fused=True)
gestures = TensorDataset(torch.randn(2000, 60, 24), torch.randn(2000, 60, 24))
end = time.time() + 12
while time.time() < end:
    for begun, ended in DataLoader(gestures, batch_size=16, shuffle=True):
        loss = nearest(model(begun), ended)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if time.time() > end:
            break
print("loss", loss.item())
