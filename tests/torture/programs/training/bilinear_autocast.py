"""torch.nn.Bilinear under autocast, which computes differently where a dispatch mode is active."""

import torch
from tiny import digest, loader

net = torch.nn.Bilinear(4, 4, 3)
optimizer = torch.optim.Adam(net.parameters(), lr=0.1)
for x in loader():
    optimizer.zero_grad()
    with torch.autocast("cpu", torch.bfloat16):
        loss = net(x, x.flip(0)).square().mean()
    loss.backward()
    optimizer.step()
digest(net)
