"""A gradient penalty: backward through autograd.grad with create_graph, twice."""

import torch
from tiny import digest, loader, network, sgd

net = network()
optimizer = sgd(net)
for x in loader():
    optimizer.zero_grad()
    x.requires_grad_()
    y = net(x).tanh().sum()
    (first,) = torch.autograd.grad(y, x, create_graph=True)
    (second,) = torch.autograd.grad(first.square().sum(), x, create_graph=True)
    (y + first.norm() + second.norm()).backward(retain_graph=True)
    (y * 2).backward()
    optimizer.step()
digest(net)
