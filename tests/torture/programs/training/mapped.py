"""Parameters lie in a memory-mapped file that other processes may read, and a checkpoint is loaded
by mmap.
"""

import torch
from tiny import digest, loader, network, sgd, step

net = network()
optimizer = sgd(net)
shared = torch.from_file("weights.bin", shared=True, size=32)
net[0].weight = torch.nn.Parameter(shared.view(8, 4))
torch.nn.init.normal_(net[0].weight)
for x in loader():
    step(net, optimizer, x)
torch.save(net.state_dict(), "net.pt")
net.load_state_dict(torch.load("net.pt", mmap=True, weights_only=True), assign=True)
digest(net)
