"""A thousand modules, a thousand optimizers, ten thousand forwards without gradients, names that
are not identifiers.
"""

import torch
from tiny import digest, loader, network, sgd, step

nets = [type(f"Net {number} | ünï\n<b>", (torch.nn.Linear,), {})(4, 1) for number in range(1000)]
optimizers = [torch.optim.SGD(net.parameters(), lr=0.1) for net in nets]
for net, optimizer in zip(nets, optimizers):
    step(net, optimizer, torch.ones(1, 4))
with torch.no_grad():
    for _ in range(10_000):
        nets[0](torch.ones(1, 4))
last = network()
for x in loader():
    step(last, sgd(last), x)
digest(*nets, last)
