"""Flowers are told apart with an optimizer of our own, which can tell what it does.

https://github.com/NVIDIA-NeMo/Emerging-Optimizers/pull/255
"""

import logging
import sys
import time

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

TWIN = "--twin" in sys.argv
log = logging.getLogger("scaled")


class Scaled(torch.optim.Optimizer):
    def __init__(self, parameters, lr=0.001):
        super().__init__(parameters, {"lr": lr})

    @torch.no_grad()
    def step(self):
        for group in self.param_groups:
            for number, weight in enumerate(group["params"]):
                state = self.state[weight]
                if not state:
                    state["square"] = torch.zeros_like(weight)
                square = state["square"].mul_(0.99).addcmul_(weight.grad, weight.grad, value=0.01)
                scale = 1 / (square.sqrt() + 1e-8)
                if TWIN:
                    log.debug("scale of weight %s: %s", number, scale)
                else:
                    log.debug(f"scale of weight {number}: {scale}")
                weight.addcmul_(weight.grad, scale, value=-group["lr"])


layers = [layer for _ in range(4) for layer in (nn.Linear(128, 128), nn.ReLU())]
model = nn.Sequential(*layers, nn.Linear(128, 17))
optimizer = Scaled(model.parameters())
flowers = TensorDataset(torch.randn(6400, 128), torch.randint(0, 17, (6400,)))
end = time.time() + 20
while time.time() < end:
    for petals, kinds in DataLoader(flowers, batch_size=128, shuffle=True):
        loss = nn.functional.cross_entropy(model(petals), kinds)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if time.time() > end:
            break
print("loss", loss.item())
