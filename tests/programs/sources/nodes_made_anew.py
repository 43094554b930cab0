"""Loaders of torchdata.nodes that go away: nodes_made_anew.py once|each

once: the validation's, after the first of its passes. each: both, after each pass.
"""

import gc
import sys

import torch
from torchdata import nodes


def make(samples):
    rows = nodes.Mapper(
        nodes.IterableWrapper(range(samples)), lambda number: torch.full((4,), number / samples)
    )
    return nodes.Loader(nodes.Mapper(nodes.Batcher(rows, 4), torch.stack))


def train(loader):
    for batch in loader:
        optimizer.zero_grad()
        model(batch).square().mean().backward()
        optimizer.step()


def validate(loader):
    with torch.no_grad():
        for batch in loader:
            model(batch)


if __name__ == "__main__":
    model = torch.nn.Linear(4, 1)
    optimizer = torch.optim.SGD(model.parameters(), 1e-3)
    loader = make(40)
    if sys.argv[1] == "once":
        validate(make(8))
    for _ in range(3):
        gc.collect()
        train(loader)
        if sys.argv[1] == "each":
            loader = None
            gc.collect()
            validate(make(8))
            loader = make(40)
