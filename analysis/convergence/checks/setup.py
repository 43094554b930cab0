"""What the checks read of a run: lists of its set-up without what is damaged, and the gradients that can be compared."""

from typing import Any

import numpy as np
import numpy.typing as npt

from feedline.analysis.convergence.recorded import FloatArray, Recorded


def listed(recorded: Recorded, key: str) -> list[dict[str, Any]]:
    """A list of the setup, without entries that are not dictionaries."""
    found = recorded.setup.get(key)
    return [one for one in found if isinstance(one, dict)] if isinstance(found, list) else []


def groups_of(optimizer: dict[str, Any]) -> list[dict[str, Any]]:
    """Its parameter groups."""
    found = optimizer.get("groups")
    return [one for one in found if isinstance(one, dict)] if isinstance(found, list) else []


def norm_layers(recorded: Recorded) -> dict[str, Any]:
    """Kind -> how many of the model's layers."""
    found = recorded.setup.get("norms")
    return found if isinstance(found, dict) else {}


def usable(recorded: Recorded) -> npt.NDArray[np.bool_]:
    """Rows with two norms to compare: bool [n]."""
    norms = recorded.norms
    if norms is None or norms.parts < 2:
        return np.zeros(0, bool)
    return np.isfinite(norms.small_sq) & np.isfinite(norms.big_sq) & (norms.big_sq > 0) & (norms.small_sq > 0)


def ratio_of(recorded: Recorded) -> FloatArray:
    """|g_part|^2 / |g_whole|^2 of each update where both are known."""
    kept = usable(recorded)
    if recorded.norms is None or not len(kept):
        return np.zeros(0)
    return np.asarray(recorded.norms.small_sq[kept] / recorded.norms.big_sq[kept], float)
