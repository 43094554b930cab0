"""Gradients of three batches are accumulated, and clipped, for each update; the last ones are
dropped.
"""

import torch
from tiny import digest, loader, network, sgd

net = network()
optimizer = sgd(net)
for number, x in enumerate(loader(batch_size=2), 1):
    (net(x).square().mean() / 3).backward()
    if number % 3 == 0:
        print(torch.nn.utils.clip_grad_norm_(net.parameters(), 0.1).item())
        optimizer.step()
        optimizer.zero_grad()
digest(net)
