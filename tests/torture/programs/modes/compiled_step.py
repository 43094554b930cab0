"""The whole step is compiled, with forward, backward and optimizer inside."""

import torch
from tiny import digest, loader, network

net = network()
optimizer = torch.optim.SGD(net.parameters(), lr=0.1)


@torch.compile(backend="eager")
def train_step(x):
    optimizer.zero_grad()
    loss = net(x).square().mean()
    loss.backward()
    optimizer.step()
    return loss


for x in loader():
    print(train_step(x).item())
digest(net)
