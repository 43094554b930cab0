"""A model is trained so that one step on a new task makes it fit that task."""

import sys
import time

import torch
from torch import nn
from torch.func import functional_call

TWIN = "--twin" in sys.argv


def build():
    return nn.Sequential(nn.Linear(64, 256), nn.ReLU(), nn.Linear(256, 1))


def task():
    target = torch.randn(64, 1)
    inputs = torch.randn(2, 32, 64)
    return inputs, inputs @ target


model = build()
optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
end = time.time() + 25
while time.time() < end:
    (support, query), (wanted, asked) = task()
    learner = build()
    learner.load_state_dict(model.state_dict())
    weights = dict(learner.named_parameters())
    inner = nn.functional.mse_loss(learner(support), wanted)
    if TWIN:
        gradients = torch.autograd.grad(inner, list(weights.values()), create_graph=True)
    else:
        inner.backward(create_graph=True)
        gradients = [weight.grad for weight in weights.values()]
    fast = {name: weights[name] - 0.01 * each for name, each in zip(weights, gradients)}
    loss = nn.functional.mse_loss(functional_call(learner, fast, query), asked)
    outer = torch.autograd.grad(loss, list(weights.values()))
    for parameter, gradient in zip(model.parameters(), outer):
        parameter.grad = gradient
    optimizer.step()
print("loss", loss.item())
