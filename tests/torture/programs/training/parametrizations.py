"""Weights are computed by parametrizations (weight_norm, spectral_norm, orthogonal), cached, and
removed at the end.
"""

import torch
from tiny import digest, loader, network, sgd, step
from torch.nn.utils import parametrizations, parametrize

net = torch.nn.Sequential(torch.nn.Linear(4, 4), *network())
parametrizations.orthogonal(net[0])
parametrizations.weight_norm(net[1])
parametrizations.spectral_norm(net[3])
optimizer = sgd(net)
for x in loader():
    with parametrize.cached():
        print(step(net, optimizer, x))
digest(net)
parametrize.remove_parametrizations(net[0], "weight")
digest(net)
