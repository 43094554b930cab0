"""torch.autograd.backward with several roots, and grad with allow_unused, is_grads_batched and
inputs.
"""

import torch
from tiny import digest, loader, network, sgd

net = network()
optimizer = sgd(net)
for x in loader():
    optimizer.zero_grad()
    a, b = net(x).sum(), net(x * 2).sum()
    torch.autograd.backward(
        [a, b], [torch.tensor(1.0), torch.tensor(0.5)], inputs=[net[0].weight], retain_graph=True
    )
    grads = torch.autograd.grad(
        [a], [net[0].bias, torch.ones(1, requires_grad=True)], allow_unused=True, retain_graph=True
    )
    (many,) = torch.autograd.grad(
        net(x), net[2].weight, torch.eye(4).unsqueeze(-1), is_grads_batched=True
    )
    print(grads[1], many.shape, many.sum().item())
    optimizer.step()
digest(net)
