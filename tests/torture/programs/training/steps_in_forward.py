"""A module updates its own parameters in its forward."""

import torch
from tiny import digest, loader


class Learner(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.inner = torch.nn.Linear(4, 1)
        self.optimizer = torch.optim.SGD(self.inner.parameters(), lr=0.1)

    def forward(self, x):
        self.optimizer.zero_grad()
        loss = self.inner(x).square().mean()
        loss.backward()
        self.optimizer.step()
        return loss.detach()


learner = Learner()
for _ in range(2):
    for x in loader():
        learner(x)
digest(learner)
