"""SOAP (Vyas et al. 2024, arXiv 2409.11321) of the package pytorch_optimizer."""

from typing import Any

import torch

from feedline.convergence.fix import optimizer_fix, without_small_decay
from feedline.profiler.errors import MissingDependency

__all__ = ["FIX", "soap"]


def soap(
    params: Any,
    lr: float,
    betas: tuple[float, float] = (0.95, 0.95),
    eps: float = 1e-8,
    weight_decay: float = 0.01,
    precondition_frequency: int = 10,
    **more: Any,
) -> torch.optim.Optimizer:
    """Make pytorch_optimizer's ``SOAP`` without decay on tensors of at most one dimension.

    Args:
        params: tensors, (name, tensor) pairs or groups. A group with both kinds becomes two.
        lr: as for ``pytorch_optimizer.SOAP``. Its first update only looks at the gradient.
        betas: likewise.
        eps: likewise.
        weight_decay: likewise.
        precondition_frequency: updates between two eigenbases.
        **more: likewise.

    Raises:
        MissingDependency: pytorch_optimizer is not installed.
    """
    try:
        from pytorch_optimizer import SOAP
    except ImportError:
        raise MissingDependency(
            "SOAP comes from the package pytorch_optimizer, which is not installed: pip install "
            "pytorch_optimizer"
        ) from None
    groups = without_small_decay(params, weight_decay)
    optimizer: torch.optim.Optimizer = SOAP(
        groups,
        lr,
        betas=betas,
        eps=eps,
        weight_decay=weight_decay,
        precondition_frequency=precondition_frequency,
        **more,
    )
    return optimizer


FIX = optimizer_fix(
    "soap",
    soap,
    keys=("wd", "beta1", "beta2", "eps", "every"),
    summary="Adam in the eigenbasis of each layer's gradient covariance",
    control="adamw={lr}",
    betas=(0.95, 0.95),
)
