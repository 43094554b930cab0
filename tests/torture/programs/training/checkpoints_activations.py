"""Activations are recomputed in backward: torch.utils.checkpoint, re-entrant and not, with dropout."""

import torch
from tiny import digest, loader, network, sgd
from torch.utils.checkpoint import checkpoint, checkpoint_sequential

for reentrant in (True, False):
    net = torch.nn.Sequential(*network(), torch.nn.Dropout(0.5))
    optimizer = sgd(net)
    for x in loader():
        optimizer.zero_grad()
        x = x.requires_grad_()
        whole = checkpoint(net, x, use_reentrant=reentrant)
        parts = checkpoint_sequential(net, 2, x, use_reentrant=reentrant)
        (whole + parts).square().mean().backward()
        optimizer.step()
    digest(net)
