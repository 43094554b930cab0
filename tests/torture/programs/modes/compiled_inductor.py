"""torch.compile as it is by default: inductor with C++ kernels."""

import torch
from tiny import digest, loader, network, sgd, step

net = network()
optimizer = sgd(net)
compiled = torch.compile(net)
for x in loader():
    print(step(compiled, optimizer, x))
digest(net)
