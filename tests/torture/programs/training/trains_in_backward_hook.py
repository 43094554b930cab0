"""A hook in backward trains another network, whose steps lie inside the first one's backward."""

import torch
from tiny import digest, loader, network, sgd, step

net, other = network(), network()
optimizer, inner = sgd(net), sgd(other)


@torch.enable_grad()
def inside(module, grads_in, grads_out):
    print("inner", step(other, inner, grads_out[0].new_ones(2, 4)))


net[0].register_full_backward_hook(inside)
for x in loader():
    step(net, optimizer, x)
digest(net, other)
