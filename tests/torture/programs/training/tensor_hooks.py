"""Hooks on tensors: they change gradients, remove themselves, retain gradients of non-leaf tensors,
and watch nodes of the graph.
"""

from tiny import digest, loader, network, sgd

net = network()
optimizer = sgd(net)
calls = []
handle = net[0].weight.register_hook(
    lambda grad: (calls.append("weight"), handle.remove() if len(calls) > 9 else None, grad * 0.5)[
        -1
    ]
)
for x in loader():
    optimizer.zero_grad()
    hidden = net[0](x)
    hidden.retain_grad()
    hidden.register_hook(lambda grad: calls.append("hidden"))
    hidden.grad_fn.register_prehook(lambda grads: calls.append("before"))
    hidden.grad_fn.register_hook(lambda after, before: calls.append("after"))
    net[2](hidden.relu()).square().mean().backward()
    calls.append(hidden.grad.norm().item() > 0)
    optimizer.step()
print(calls)
digest(net)
