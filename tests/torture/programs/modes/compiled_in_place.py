"""Module.compile() in place, fullgraph, and a compiled optimizer step."""

import torch
from tiny import digest, loader, network, sgd


class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.inner = network()

    def forward(self, x):
        return self.inner(x) * 2


net = Net()
net.compile(backend="aot_eager", fullgraph=True)
optimizer = sgd(net)
update = torch.compile(optimizer.step, backend="eager")
for x in loader():
    optimizer.zero_grad()
    net(x).square().mean().backward()
    update()
digest(net)
