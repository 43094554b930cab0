"""NovoGrad (Ginsburg et al. 2019, arXiv 1905.11286, algorithm 1)."""

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
)

__all__ = ["FIX", "NovoGrad"]


class NovoGrad(LayerwiseOptimizer):
    """Momentum over gradients that are divided by the root of a running mean of their squared norm.

    Tensor by tensor: ``v = beta2 * v + (1 - beta2) * |g|^2`` (at first ``|g|^2``),
    ``m = beta1 * m + (g / (sqrt(v) + eps) + weight_decay * w)``, ``w = w - lr * m``. Excluded
    tensors are divided too, as in the paper, where every tensor is a layer; they have no weight
    decay.

    Args:
        params: as for any torch optimizer. A group may say ``"excluded": True`` or ``False`` for
            all its tensors.
        lr: a number or a tensor of one element (which does not make torch.compile recompile).
        betas: not the paper's (0.95, 0.98), with which short trainings went worse
            (docs/fixes/novograd.md).
        eps: added to the root of the second moment.
        weight_decay: the paper's for ResNet-50.
        excluded_lr_scale: excluded tensors move at lr times this.
        exclude: which tensors have no decay.
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
    moments = ("exp_avg",)
    scalars = {"norm_sq": -1.0}  # negative: nothing seen

    def __init__(
        self,
        params: Any,
        lr: LearningRate,
        betas: tuple[float, float] = (0.8, 0.5),
        eps: float = 1e-8,
        weight_decay: float = 0.001,
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
        moments, (beta1, beta2) = batch.state["exp_avg"], group["betas"]
        (norms,) = batch.norms(batch.grads)
        before = torch.stack(batch.state["norm_sq"])
        now = torch.where(before < 0, norms.square(), beta2 * before + (1 - beta2) * norms.square())
        torch._foreach_copy_(batch.state["norm_sq"], list(now.unbind()))
        torch._foreach_mul_(moments, beta1)
        if batch.adapted and group["weight_decay"]:
            torch._foreach_add_(moments, batch.params, alpha=group["weight_decay"])
        share = (now.sqrt() + group["eps"]).reciprocal()
        add_scaled(moments, batch.grads, share)
        lr = batch.rate(group["lr"])
        add_scaled(
            batch.params, moments, -lr if batch.adapted else -lr * group["excluded_lr_scale"]
        )


FIX = optimizer_fix(
    "novograd",
    NovoGrad,
    keys=("wd", "beta1", "beta2", "eps", "excluded"),
    summary="momentum over gradients that are divided, layer by layer, by their running norm",
    control="lr_rule=linear,warmup=5ep",
    betas=(0.8, 0.5),
)
