"""An optimizer of the user's own: step is an instance attribute, state a property, and it steps
another one inside.
"""

import torch
from tiny import digest, network, train


class Lookahead(torch.optim.Optimizer):
    def __init__(self, parameters):
        self.fast = torch.optim.SGD(list(parameters), lr=0.1)
        super().__init__(self.fast.param_groups, {})
        self.slow = [p.detach().clone() for group in self.param_groups for p in group["params"]]
        self.step = self.look

    @torch.no_grad()
    def look(self, closure=None):
        self.fast.step(closure)
        for slow, p in zip(self.slow, (p for group in self.param_groups for p in group["params"])):
            slow.lerp_(p, 0.5)
            p.copy_(slow)


net = network()
train(net, optimizer=Lookahead(net.parameters()))
digest(net)
