"""LARC: LARS whose rate never exceeds the global one.

NVIDIA apex, apex/parallel/LARC.py, clip=True; after arXiv 1708.03888.
"""

import math
from collections.abc import Callable
from typing import Any

from torch import Tensor

from feedline.convergence.fix import at_most_one_dimension, optimizer_fix
from feedline.convergence.fixes.lars import Lars, LearningRate, unless_zero

__all__ = ["FIX", "Larc"]


class Larc(Lars):
    """SGD with momentum whose rate adapts tensor by tensor, but never exceeds ``lr``.

    It is ``min(lr, trust_coefficient * |w| / (|g| + weight_decay * |w| + eps))``, inside the
    momentum. apex has it outside; the two are the same while ``lr`` is constant, and when it
    changes this one's velocity keeps the rate of each gradient's own step, as in the paper of LARS.

    Args:
        lr: the most that any tensor's rate can be; a number or a tensor of one element.
        trust_coefficient: apex's default.
        eps: added to the norm of the gradient.
        excluded_lr_scale: excluded tensors, and tensors whose weights or gradient are all zero,
            move like in SGD at lr times this.
        params, momentum, weight_decay, exclude, maximize, foreach: as for ``Lars``.

    Raises:
        ValueError: a number is out of its range, or a parameter is complex.
    """

    ranges = {**Lars.ranges, "eps": (0, math.inf)}

    def __init__(
        self,
        params: Any,
        lr: LearningRate,
        momentum: float = 0.9,
        weight_decay: float = 5e-4,
        trust_coefficient: float = 0.02,
        eps: float = 1e-8,
        excluded_lr_scale: float = 1.0,
        *,
        exclude: Callable[[Tensor], bool] = at_most_one_dimension,
        maximize: bool = False,
        foreach: bool = True,
    ) -> None:
        """Pass the numbers on as defaults of the groups."""
        numbers = {
            "lr": lr,
            "momentum": momentum,
            "weight_decay": weight_decay,
            "trust_coefficient": trust_coefficient,
            "eps": eps,
        }
        super(Lars, self).__init__(
            params,
            {
                **numbers,
                "excluded_lr_scale": excluded_lr_scale,
                "maximize": maximize,
                "foreach": foreach,
            },
            exclude,
        )

    def _adapted(
        self,
        weights: Tensor,
        gradients: Tensor,
        lr: LearningRate,
        otherwise: LearningRate,
        group: dict[str, Any],
    ) -> Tensor:
        trusted = (
            group["trust_coefficient"]
            * weights
            / (gradients + group["weight_decay"] * weights + group["eps"])
        )
        return unless_zero(trusted.clamp(max=lr), otherwise, weights, gradients)


FIX = optimizer_fix(
    "larc",
    Larc,
    keys=("wd", "momentum", "trust", "eps", "excluded"),
    summary="LARS that caps each layer's learning rate at the given one",
    control="lr_rule=linear,warmup=5ep",
)
