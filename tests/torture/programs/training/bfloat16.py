"""Everything is bfloat16: parameters, inputs, optimizer states."""

import torch
from tiny import digest, loader, network, sgd, step

net = network().to(torch.bfloat16)
optimizer = sgd(net)
for x in loader():
    print(step(net, optimizer, x.to(torch.bfloat16)))
digest(net)
