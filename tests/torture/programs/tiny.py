"""A tiny training, for programs whose oddity lies elsewhere.

Lies beside every program when it runs.
"""

import hashlib
import pickle
import random

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

torch.manual_seed(0)
random.seed(0)
np.random.seed(0)


class Numbers(Dataset):
    """Samples of four numbers each, always the same."""

    def __init__(self, size=32):
        self.size = size

    def __len__(self):
        return self.size

    def __getitem__(self, index):
        return torch.sin(torch.arange(4.0) * index)


def network():
    return nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 1))


def sgd(net):
    return torch.optim.SGD(net.parameters(), lr=0.1, momentum=0.9)


def loader(**settings):
    return DataLoader(Numbers(), **{"batch_size": 4, "shuffle": True, **settings})


def step(net, optimizer, x):
    optimizer.zero_grad()
    loss = net(x).square().mean()
    loss.backward()
    optimizer.step()
    return loss.item()


def train(net=None, batches=None, optimizer=None):
    """One epoch. Returns the network."""
    net = net or network()
    optimizer = optimizer or sgd(net)
    for x in batches or loader():
        step(net, optimizer, x)
    return net


def sha(data):
    return hashlib.sha256(data).hexdigest()[:12]


def tensors(thing):
    if isinstance(thing, torch.Tensor):
        return [thing]
    return [*thing.parameters(), *thing.buffers()]


def digest(*things):
    """Print what was trained (modules, tensors), and where the random generators are."""
    with torch.no_grad():
        data = b"".join(
            bytes(t.detach().cpu().contiguous().view(-1).view(torch.uint8).numpy())
            for thing in things
            for t in tensors(thing)
        )
    states = pickle.dumps(random.getstate()), pickle.dumps(np.random.get_state()[1:])
    print(
        "parameters",
        sha(data),
        "random",
        sha(torch.get_rng_state().numpy().tobytes()),
        *map(sha, states),
        flush=True,
    )
