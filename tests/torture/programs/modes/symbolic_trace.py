"""A network is traced by torch.fx and by make_fx, its graph edited, and trained on."""

import torch
from tiny import digest, loader, network, sgd, step
from torch.fx.experimental.proxy_tensor import make_fx

net = network()
traced = torch.fx.symbolic_trace(net)
for node in traced.graph.nodes:
    if node.op == "call_module" and node.target == "1":
        with traced.graph.inserting_after(node):
            node.replace_all_uses_with(new := traced.graph.call_function(torch.tanh, (node,)))
            new.args = (node,)
traced.recompile()
print(traced.code)
optimizer = sgd(traced)
for x in loader():
    print(step(traced, optimizer, x))
print(make_fx(lambda x: torch.autograd.grad(net(x).sum(), list(net.parameters())))(x).code)
digest(net)
