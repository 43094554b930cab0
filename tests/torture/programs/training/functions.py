"""autograd.Function of the user's own: once_differentiable, setup_context, a backward that raises,
marks and non-tensors.
"""

import torch
from tiny import digest, loader, network, sgd
from torch.autograd.function import once_differentiable


class Clip(torch.autograd.Function):
    @staticmethod
    def forward(x, limit):
        return x.clamp(-limit, limit)

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.save_for_backward(inputs[0])
        ctx.limit = inputs[1]

    @staticmethod
    @once_differentiable
    def backward(ctx, grad):
        (x,) = ctx.saved_tensors
        return grad * (x.abs() <= ctx.limit), None


class Angry(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x.clone()

    @staticmethod
    def backward(ctx, grad):
        raise ValueError("not today")


net = network()
optimizer = sgd(net)
for number, x in enumerate(loader()):
    optimizer.zero_grad()
    y = Clip.apply(net(x), 0.3)
    y = Angry.apply(y) if number == 2 else y
    try:
        y.square().mean().backward()
    except ValueError as error:
        print("raised", error)
        continue
    optimizer.step()
digest(net)
