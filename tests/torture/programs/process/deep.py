"""The recursion limit is low, networks are nested deep, and a forward runs into the limit."""

import sys

import torch
from tiny import digest, loader, sgd, step


class Deep(torch.nn.Module):
    def __init__(self, depth):
        super().__init__()
        self.inner = Deep(depth - 1) if depth else torch.nn.Linear(4, 4)

    def forward(self, x):
        return self.inner(x)


class Endless(torch.nn.Module):
    def forward(self, x):
        return self(x)


net = Deep(60)
optimizer = sgd(net)
for x in loader():
    print(step(net, optimizer, x))
sys.setrecursionlimit(400)
try:
    Endless()(x)
except RecursionError as error:
    print(str(error).partition(" in ")[0].partition(" while ")[0])
print(step(net, optimizer, x))
digest(net)
