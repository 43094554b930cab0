"""A module of the user's own is scripted by torch.jit.script, with Tensor.to, a submodule's call
and control flow in it; then a frozen one teaches it.
"""

import torch
from tiny import digest, loader, sgd, step


class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.inner = torch.nn.Linear(4, 4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.inner(x).to(torch.float64)
        if bool(y.sum() > 0):
            y = y * 2
        return y.to(x.dtype)


net = torch.jit.script(Net())
print(net.code)
optimizer = sgd(net)
for x in loader():
    print(step(net, optimizer, x))
digest(net)
teacher = torch.jit.freeze(torch.jit.script(Net().eval()))  # it has no attribute `training`
for x in loader():
    with torch.no_grad():
        wanted = teacher(x)
    optimizer.zero_grad()
    (net(x) - wanted).square().mean().backward()
    optimizer.step()
digest(net)
