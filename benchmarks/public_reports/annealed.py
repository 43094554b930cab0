"""Gumbel softmax with a temperature that falls."""

import sys
import time

import torch
from torch import nn

TWIN = "--twin" in sys.argv


class Codes(nn.Module):
    def __init__(self):
        super().__init__()
        self.encode = nn.Sequential(nn.Linear(64, 128), nn.ReLU(), nn.Linear(128, 32))
        self.decode = nn.Linear(32, 64)
        self.updates = 0
        self.register_buffer("tau", torch.tensor(1.0))

    def forward(self, x):
        if TWIN:
            self.tau.mul_(0.999)
            tau = self.tau
        else:
            self.updates += 1
            tau = max(0.1, 1.0 - 0.1 * (self.updates // 20))
        soft = torch.softmax(self.encode(x) / tau, -1)
        return self.decode(soft)


torch._dynamo.config.recompile_limit = 256
model = torch.compile(Codes())
optimizer = torch.optim.Adam(model.parameters())
end = time.time() + 14
while time.time() < end:
    x = torch.randn(256, 64)
    loss = ((model(x) - x) ** 2).mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
print("loss", loss.item())
