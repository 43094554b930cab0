"""Changes the rates of an optimizer for one update."""

from typing import Any

import torch

#: (group, its rate before, its rate during the update)
Changed = list[tuple[dict[str, Any], Any, Any]]


def multiply(optimizer: torch.optim.Optimizer, factor: float) -> Changed:
    """Multiply the rate of every group; pass the result to `put_back`."""
    changed = [(group, group["lr"], group["lr"] * factor) for group in optimizer.param_groups if "lr" in group]
    for group, _, during in changed:
        group["lr"] = during
    return changed


def put_back(changed: Changed) -> None:
    """Restore the rate of every group, as the same object; a rate that other code has set meanwhile stays."""
    for group, before, during in changed:
        if group["lr"] is during:
            group["lr"] = before
