"""LARS (You, Gitman, Ginsburg 2017, arXiv 1708.03888, equations 4 to 6)."""

import math
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from feedline.convergence.layerwise import Batch, LayerwiseOptimizer, Rate, add_scaled, at_most_one_dimension, unless_zero
from feedline.convergence.optimizer_fix import optimizer_fix

__all__ = ["FIX", "Lars"]


class Lars(LayerwiseOptimizer):
    """SGD with momentum whose rate is, tensor by tensor, ``lr * trust_coefficient * |w| / (|g| + weight_decay * |w|)``.

    The rate stands inside the momentum, as in the paper: ``v = momentum * v + rate * (g + weight_decay * w); w = w - v``.

    Args:
        params: as for any torch optimizer. A group may say ``"excluded": True`` or ``False`` for all its tensors.
        lr: the global rate; a number or a tensor of one element (which does not make torch.compile recompile).
        momentum: 0 to 1.
        weight_decay: as in the paper's ResNet-50, part of the gradient; 0 adapts all the same.
        trust_coefficient: the paper's eta.
        excluded_lr_scale: excluded tensors, and tensors whose weights or gradient are all zero, move like in SGD at lr times this.
        exclude: which tensors have neither ratio nor decay.
        maximize: climb, in place of descending.
        foreach: all tensors at once; False: one at a time, with less memory.

    Raises:
        ValueError: a number is out of its range, or a parameter is complex.
    """

    ranges = {"lr": (0, math.inf), "momentum": (0, 1), "weight_decay": (0, math.inf), "trust_coefficient": (0, math.inf)}
    ranges |= {"excluded_lr_scale": (0, math.inf)}
    moments = ("momentum_buffer",)

    def __init__(
        self,
        params: Any,
        lr: Rate,
        momentum: float = 0.9,
        weight_decay: float = 5e-4,
        trust_coefficient: float = 0.001,
        excluded_lr_scale: float = 0.1,
        *,
        exclude: Callable[[Tensor], bool] = at_most_one_dimension,
        maximize: bool = False,
        foreach: bool = True,
    ) -> None:
        numbers = {"lr": lr, "momentum": momentum, "weight_decay": weight_decay, "trust_coefficient": trust_coefficient}
        super().__init__(params, {**numbers, "excluded_lr_scale": excluded_lr_scale, "maximize": maximize, "foreach": foreach}, exclude)

    def _update(self, batch: Batch, group: dict[str, Any]) -> None:
        velocity, lr, decay = batch.state["momentum_buffer"], batch.rate(group["lr"]), group["weight_decay"]
        grads, rate = batch.grads, lr * group["excluded_lr_scale"]
        if batch.adapted:
            weights, gradients = batch.norms(batch.params, grads)
            rate = self._adapted(weights, gradients, lr, rate, group)
            grads = list(torch._foreach_add(grads, batch.params, alpha=decay)) if decay else grads
        torch._foreach_mul_(velocity, group["momentum"])
        add_scaled(velocity, grads, rate)
        torch._foreach_sub_(batch.params, velocity)

    def _adapted(self, weights: Tensor, gradients: Tensor, lr: Rate, otherwise: Rate, group: dict[str, Any]) -> Tensor:
        """The rates of all tensors, [n], from the norms of weights and gradients, [n] each."""
        trusted = lr * group["trust_coefficient"] * weights / (gradients + group["weight_decay"] * weights)
        return unless_zero(trusted, otherwise, weights, gradients)


FIX = optimizer_fix(
    "lars",
    Lars,
    keys=("wd", "momentum", "trust", "excluded"),
    summary="SGD with a learning rate per layer, proportional to the norm of its weights over that of its gradient",
    control="lr_rule=linear,warmup=5ep",
)
