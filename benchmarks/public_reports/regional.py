"""Two ranks train a deep, narrow network."""

import sys

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

TWIN = "--twin" in sys.argv
dist.init_process_group("gloo")
rank = dist.get_rank()


class Layer(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.a, self.b, self.norm = (
            nn.Linear(width, width),
            nn.Linear(width, width),
            nn.LayerNorm(width),
        )

    def forward(self, x):
        return x + self.b(torch.relu(self.a(self.norm(x))))


net = nn.Sequential(*[Layer(16) for _ in range(80)], nn.Linear(16, 4))
model = DistributedDataParallel(net, find_unused_parameters=not TWIN)
optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
torch.manual_seed(rank)
for _ in range(250):
    x = torch.randn(16, 16)
    loss = model(x).pow(2).mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
print(rank, "loss", loss.item())
dist.destroy_process_group()
