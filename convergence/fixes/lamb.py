"""LAMB (You et al. 2020, arXiv 1904.00962, algorithm 2)."""

import math
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from feedline.convergence.fix import at_most_one_dimension, optimizer_fix
from feedline.convergence.fixes.lars import (
    LayerwiseOptimizer,
    LearningRate,
    TensorBatch,
    add_scaled,
    unless_zero,
)

__all__ = ["FIX", "Lamb"]


class Lamb(LayerwiseOptimizer):
    """Adam whose step is, tensor by tensor, as long as ``lr * |w|``.

    ``r = m^ / (sqrt(v^) + eps)`` with both moments corrected for their bias, ``u = r + weight_decay
    * w``, ``w = w - lr * |w| / |u| * u``; phi, the paper's scaling function, is the identity.

    Args:
        params: as for any torch optimizer. A group may say ``"excluded": True`` or ``False`` for
            all its tensors.
        lr: a number or a tensor of one element (which does not make torch.compile recompile).
        betas: of the two moments.
        eps: added to the root of the second moment; the default is that of the authors' code.
        weight_decay: decoupled, inside the trust ratio; the paper's for BERT; 0 adapts all the
            same.
        excluded_lr_scale: excluded tensors, and tensors whose weights or update are all zero, move
            like in Adam at lr times this.
        exclude: which tensors have neither ratio nor decay.
        maximize: climb, in place of descending.
        foreach: all tensors at once; False: one at a time, with less memory.

    Raises:
        ValueError: a number is out of its range, or a parameter is complex.
    """

    ranges = {
        "lr": (0, math.inf),
        "betas": (0, 1),
        "eps": (0, math.inf),
        "weight_decay": (0, math.inf),
        "excluded_lr_scale": (0, math.inf),
    }
    moments = ("exp_avg", "exp_avg_sq")
    scalars = {"step": 0.0}

    def __init__(
        self,
        params: Any,
        lr: LearningRate,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-6,
        weight_decay: float = 0.01,
        excluded_lr_scale: float = 1.0,
        *,
        exclude: Callable[[Tensor], bool] = at_most_one_dimension,
        maximize: bool = False,
        foreach: bool = True,
    ) -> None:
        """Pass the numbers on as defaults of the groups."""
        numbers = {
            "lr": lr,
            "betas": betas,
            "eps": eps,
            "weight_decay": weight_decay,
            "excluded_lr_scale": excluded_lr_scale,
        }
        super().__init__(params, {**numbers, "maximize": maximize, "foreach": foreach}, exclude)

    def _update(self, batch: TensorBatch, group: dict[str, Any]) -> None:
        updates, scale = self._adam(batch, group)
        lr, decay = batch.rate(group["lr"]), group["weight_decay"]
        rate = lr * group["excluded_lr_scale"]
        if batch.adapted:
            if decay:
                add_scaled(updates, batch.params, decay / scale)
            weights, lengths = batch.norms(batch.params, updates)
            rate = unless_zero(lr * weights / (scale * lengths), rate, weights, lengths)
        add_scaled(batch.params, updates, -rate * scale)

    def _adam(self, batch: TensorBatch, group: dict[str, Any]) -> tuple[list[Tensor], Tensor]:
        """Return Adam's update as tensors, and what to multiply each with, [n].

        That is ``m^ / (sqrt(v^) + eps)``; this way no pass over the tensors corrects a bias.
        """
        first, second, steps = (batch.state[name] for name in ("exp_avg", "exp_avg_sq", "step"))
        beta1, beta2 = group["betas"]
        torch._foreach_lerp_(first, batch.grads, 1 - beta1)
        torch._foreach_mul_(second, beta2)
        torch._foreach_addcmul_(second, batch.grads, batch.grads, 1 - beta2)
        torch._foreach_add_(steps, 1)
        step = torch.stack(steps)
        root = _share_seen(beta2, step).sqrt()
        updates = list(torch._foreach_sqrt(second))
        torch._foreach_add_(updates, list((root * group["eps"]).unbind()))
        torch._foreach_reciprocal_(updates)
        torch._foreach_mul_(updates, first)
        return updates, root / _share_seen(beta1, step)


def _share_seen(beta: float, step: Tensor) -> Tensor:
    """Return ``1 - beta ** step`` to the last digit.

    Also where beta is close to 1 and the step in float32.
    """
    return -torch.expm1(step * (math.log(beta) if beta else -math.inf))


FIX = optimizer_fix(
    "lamb",
    Lamb,
    keys=("wd", "beta1", "beta2", "eps", "excluded"),
    summary="Adam with each layer's step scaled to the norm of its weights",
    control="adamw={lr}",
)
