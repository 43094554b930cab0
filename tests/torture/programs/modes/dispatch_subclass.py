"""Parameters are wrappers around tensors that see every operator through __torch_dispatch__."""

from collections import Counter

import torch
from tiny import digest
from torch.utils._pytree import tree_map

counts = Counter()


class Wrapped(torch.Tensor):
    @staticmethod
    def __new__(cls, inner):
        return torch.Tensor._make_wrapper_subclass(
            cls, inner.shape, dtype=inner.dtype, requires_grad=inner.requires_grad
        )

    def __init__(self, inner):
        self.inner = inner.detach()

    @classmethod
    def __torch_dispatch__(cls, function, types, args=(), kwargs=None):
        counts[str(function)] += 1
        plain = tree_map(lambda x: x.inner if isinstance(x, Wrapped) else x, (args, kwargs or {}))
        out = function(*plain[0], **plain[1])
        return (
            tree_map(lambda x: Wrapped(x) if isinstance(x, torch.Tensor) else x, out)
            if "_" not in function.__name__[-1:]
            else args[0]
        )


weight = Wrapped(torch.randn(4, 4)).requires_grad_()
for _ in range(6):
    loss = (weight @ torch.randn(4, 4)).relu().sum()
    loss.backward()
    weight.inner -= 0.1 * weight.grad.inner
    weight.grad = None
print(sorted(counts.items()))
digest(weight.inner)
