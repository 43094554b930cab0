"""Ranks that take several updates by themselves between two exchanges."""

from typing import Any

from feedline.convergence.fixes.local_sgd.averaged import average, to_average
from feedline.convergence.fixes.local_sgd.fix import FIX

__all__ = ["FIX", "LocalSgd", "average", "local_sgd", "to_average"]


def __getattr__(name: str) -> Any:
    """`LocalSgd` and `local_sgd` bring torch.distributed.optim, which takes a while: only once they are asked for."""
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from feedline.convergence.fixes.local_sgd import optimizer

    return getattr(optimizer, name)
