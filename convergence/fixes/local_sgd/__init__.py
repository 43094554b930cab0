"""Local SGD: ranks make several updates on their own between two exchanges."""

from typing import Any

from feedline.convergence.fixes.local_sgd.averaged import average, to_average
from feedline.convergence.fixes.local_sgd.fix import FIX

__all__ = ["FIX", "LocalSgd", "average", "local_sgd", "to_average"]


def __getattr__(name: str) -> Any:
    """Import `LocalSgd` and `local_sgd` on first use, because torch.distributed.optim takes a while."""
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from feedline.convergence.fixes.local_sgd import optimizer

    return getattr(optimizer, name)
