"""Weights are computed by parametrizations (weight_norm, spectral_norm, orthogonal), cached, and removed at the end."""

from tiny import digest, loader, network, sgd, step
from torch.nn.utils import parametrizations, parametrize

net = network()
parametrizations.weight_norm(net[0])
parametrizations.spectral_norm(net[2])
parametrizations.orthogonal(net[0], "weight")
optimizer = sgd(net)
for x in loader():
    with parametrize.cached():
        print(step(net, optimizer, x))
digest(net)
parametrize.remove_parametrizations(net[0], "weight")
digest(net)
