"""No gradients at all: parameters are changed by trial and error."""

import torch
from tiny import digest, loader, network

net = network()
with torch.no_grad():
    for x in loader():
        before = net(x).square().mean()
        noise = [torch.randn_like(p) * 0.1 for p in net.parameters()]
        for p, n in zip(net.parameters(), noise):
            p += n
        if net(x).square().mean() > before:
            for p, n in zip(net.parameters(), noise):
                p -= n
digest(net)
