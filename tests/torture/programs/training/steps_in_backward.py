"""Each parameter is updated inside backward, as memory-saving recipes do
(register_post_accumulate_grad_hook).
"""

import torch
from tiny import digest, loader, network

net = network()
optimizers = {parameter: torch.optim.AdamW([parameter], lr=0.01) for parameter in net.parameters()}


def update(parameter):
    optimizers[parameter].step()
    optimizers[parameter].zero_grad()


for parameter in net.parameters():
    parameter.register_post_accumulate_grad_hook(update)
for _ in range(2):
    for x in loader():
        net(x).square().mean().backward()
digest(net)
