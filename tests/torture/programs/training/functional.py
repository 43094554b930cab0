"""Parameters that belong to no module: functional_call, stacked ensembles under vmap, gradients by
torch.func, updates by hand.
"""

import torch
from tiny import digest, loader, network
from torch.func import functional_call, grad, stack_module_state, vmap

nets = [network() for _ in range(3)]
parameters, buffers = stack_module_state(nets)
base = network()


def loss(parameters, buffers, x):
    return functional_call(base, (parameters, buffers), (x,)).square().mean()


for x in loader():
    grads = vmap(grad(loss), in_dims=(0, 0, None))(parameters, buffers, x)
    with torch.no_grad():
        for name, values in grads.items():
            parameters[name] -= 0.1 * values
digest(*parameters.values())
