"""Batches are nested tensors, jagged."""

import torch
from tiny import digest, network, sgd

net = network()
optimizer = sgd(net)
for _ in range(6):
    x = torch.nested.nested_tensor([torch.randn(n, 4) for n in (1, 3, 2)], layout=torch.jagged)
    optimizer.zero_grad()
    net(x).values().square().mean().backward()
    optimizer.step()
digest(net)
