"""A small radiance field: colors and densities along rays."""

import sys
import time

import torch
from torch import nn

TWIN = "--twin" in sys.argv
torch.autograd.set_detect_anomaly(not TWIN)


class Field(nn.Module):
    def __init__(self, width=64, depth=8):
        super().__init__()
        self.layers = nn.ModuleList(
            [nn.Linear(39 if i == 0 else width, width) for i in range(depth)]
        )
        self.head = nn.Linear(width, 4)

    def forward(self, x):
        encoded = [x] + [f(x * 2.0**k) for k in range(6) for f in (torch.sin, torch.cos)]
        h = torch.cat(encoded, -1)
        for layer in self.layers:
            h = torch.relu(layer(h))
        return self.head(h)


def render(field, origins, directions, samples=16):
    t = torch.linspace(1, 4, samples)
    points = origins[:, None] + directions[:, None] * t[None, :, None]
    raw = field(points)
    alpha = 1 - torch.exp(-torch.relu(raw[..., 3]) * (t[1] - t[0]))
    through = torch.cumprod(1 - alpha + 1e-6, -1)
    return ((alpha * through)[..., None] * torch.sigmoid(raw[..., :3])).sum(1)


field = Field()
optimizer = torch.optim.Adam(field.parameters(), lr=5e-4)
rays = torch.randn(4096, 6)
colors = torch.rand(4096, 3)
end = time.time() + 12
while time.time() < end:
    chosen = torch.randint(0, 4096, (32,))
    batch = rays[chosen]
    loss = ((render(field, batch[:, :3], batch[:, 3:]) - colors[chosen]) ** 2).mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
print("loss", loss.item())
