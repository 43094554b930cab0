"""torch.func in full: jvp, vjp, jacrev, hessian, per-sample gradients, and forward-mode AD."""

import torch
from tiny import digest, loader, network, sgd, step
from torch.autograd import forward_ad
from torch.func import functional_call, grad, hessian, jacrev, jvp, vjp, vmap

net = network()
optimizer = sgd(net)
for x in loader():
    print(step(net, optimizer, x))
    values = {name: p.detach() for name, p in net.named_parameters()}

    def f(x, values=values):
        return functional_call(net, values, (x,)).sum()

    print(
        float(jvp(f, (x,), (torch.ones_like(x),))[1]),
        float(vjp(f, x)[1](torch.tensor(1.0))[0].sum()),
        float(jacrev(f)(x).sum()),
    )
    print(hessian(f)(x).shape, vmap(grad(f))(x).sum().item())
    with forward_ad.dual_level():
        print(forward_ad.unpack_dual(net(forward_ad.make_dual(x, x))).tangent.sum().item())
digest(net)
