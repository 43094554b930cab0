"""Weights are tied, some frozen, some unused, some added in mid-training; a gradient is set by
hand.
"""

import torch
from tiny import digest, loader, network, sgd, step

net = network()
twin = torch.nn.Linear(4, 8)
twin.weight = net[0].weight
unused = torch.nn.Linear(2, 2)
net.unused = unused
net.forward = lambda x: net[2](net[1](net[0](x) + twin(x)))
net[0].bias.requires_grad_(False)
optimizer = sgd(net)
for number, x in enumerate(loader()):
    if number == 3:
        extra = torch.nn.Parameter(torch.ones(1))
        optimizer.add_param_group({"params": [extra], "lr": 0.5})
    if number > 3:
        extra.grad = torch.full((1,), 0.1)
    print(step(net, optimizer, x))
digest(net, twin, extra)
