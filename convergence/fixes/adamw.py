"""torch's AdamW with decay where LAMB has it, so that the trust ratio is all that differs."""

from typing import Any

import torch

from feedline.convergence.fix import optimizer_fix, without_small_decay

__all__ = ["FIX", "adamw"]


def adamw(
    params: Any,
    lr: float,
    betas: tuple[float, float] = (0.9, 0.999),
    eps: float = 1e-8,
    weight_decay: float = 0.01,
    **more: Any,
) -> torch.optim.AdamW:
    """Make a ``torch.optim.AdamW`` without decay on tensors of at most one dimension.

    Args:
        params: tensors, (name, tensor) pairs or groups. A group with both kinds becomes two.
        lr: as for ``torch.optim.AdamW``.
        betas: likewise.
        eps: likewise.
        weight_decay: likewise.
        **more: likewise.
    """
    return torch.optim.AdamW(
        without_small_decay(params, weight_decay), lr, betas, eps, weight_decay, **more
    )


FIX = optimizer_fix(
    "adamw",
    adamw,
    keys=("wd", "beta1", "beta2", "eps"),
    summary="torch's AdamW, without decay of biases and normalization weights: the control of "
    "lamb and soap",
    control="lr_rule=linear,warmup=5ep",
)
