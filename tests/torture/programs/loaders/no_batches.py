"""Loaders without batching: batch_size None, a dataset of batches, and lists."""

import torch
from tiny import Numbers, digest, loader, network, sgd, step

net = network()
optimizer = sgd(net)
for x in loader(batch_size=None, num_workers=2):
    step(net, optimizer, x[None])
for x in torch.utils.data.DataLoader(Numbers(9), batch_size=None, sampler=[3, 1, 4]):
    step(net, optimizer, x[None])
for x in torch.utils.data.DataLoader(list(torch.ones(4, 2, 4)), batch_size=None):
    step(net, optimizer, x)
digest(net)
