"""A network is traced by torch.jit.trace, checked, saved, and trained as a ScriptModule."""

import os

import torch
from tiny import digest, loader, network, sgd, step

net = network()
optimizer = sgd(net)
for x in loader():
    step(net, optimizer, x)
traced = torch.jit.trace(net, x)
print(traced.graph)
optimizer = sgd(traced)
for x in loader():
    step(traced, optimizer, x)
traced.save("net.pt")
digest(torch.jit.load("net.pt"))
os.remove(
    "net.pt"
)  # its debug records name the frames that the trace went through, those of a profiler too
