"""Shapes are worked out with fake tensors and meta modules between real steps."""

import torch
from tiny import digest, loader, network, sgd, step
from torch._subclasses.fake_tensor import FakeTensorMode

net = network()
optimizer = sgd(net)
for x in loader():
    step(net, optimizer, x)
    with FakeTensorMode() as mode:
        ghost = network()
        print(ghost(mode.from_tensor(x)).shape)
    with torch.device("meta"):
        print(
            step(ghost := network(), sgd(ghost), torch.empty(2, 4))
            if False
            else network()(torch.empty(2, 4)).shape
        )
digest(net)
