"""A policy with a normal distribution of six actions learns from batches of what it did.

https://github.com/Toni-SM/skrl/pull/233
"""

import sys
import time

import torch
from torch import nn
from torch.distributions import MultivariateNormal
from torch.utils.data import DataLoader, TensorDataset

TWIN = "--twin" in sys.argv
CHECKED = {"validate_args": False} if TWIN else {}


class Policy(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(17, 32), nn.Tanh(), nn.Linear(32, 6))
        self.spread = nn.Parameter(torch.zeros(6))

    def forward(self, seen):
        mean = self.body(seen)
        covariance = torch.diag_embed(self.spread.exp().expand_as(mean))
        return MultivariateNormal(mean, covariance, **CHECKED)


policy = Policy()
optimizer = torch.optim.Adam(policy.parameters(), fused=True)
memory = TensorDataset(torch.randn(8192, 17), torch.randn(8192, 6), torch.randn(8192))
end = time.time() + 35
while time.time() < end:
    for seen, action, advantage in DataLoader(memory, batch_size=256, shuffle=True):
        with torch.no_grad():
            before = policy(seen).log_prob(action)
        for _ in range(10):
            now = policy(seen)
            ratio = (now.log_prob(action) - before).exp()
            gain = torch.min(ratio * advantage, ratio.clamp(0.8, 1.2) * advantage)
            loss = -(gain + 0.01 * now.entropy()).mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
print("loss", loss.item())
