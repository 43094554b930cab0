"""Whether ranks train one model: whether gradients, or what replaces them, go from rank to rank in a rank's steps."""

import numpy as np

from feedline.analysis.ranks.partition import BACKWARD
from feedline.analysis.traces.collective_operations import BETWEEN_TWO, operation
from feedline.analysis.traces.collectives import Collectives
from feedline.profiler.store.manifest import Manifest

#: Of a model's parameters in float32, that the collectives of a step move at least if they carry gradients, however compressed.
_LEAST_SHARE = 0.01
_PARAMETER_BYTES = 4


def exchanges(one: Collectives, manifest: Manifest) -> bool | None:
    """Return whether the rank's steps exchange gradients with other ranks. None: its communication, or its model, was not seen.

    Collectives during a backward, messages between two ranks, and a step that moves a part of the model do; an all-reduced metric does not.
    """
    if one.unseen:
        return None
    table, step = one.table, one.step_at(one.table["start"])
    several = np.array([len(group.ranks) > 1 for group in one.groups] or [False])[table["group"]]
    carries = np.array([operation(name) != "barrier" for name in one.names] or [False])[table["name"]]
    inside = (step >= 0) & several & carries
    if not inside.any():
        return False
    between = np.array([operation(name) in BETWEEN_TWO for name in one.names])[table["name"]]
    if (inside & (between | table["bucket"] | (table["phase"] == BACKWARD))).any():
        return True
    if not (elements := _trained_elements(manifest)):
        return None
    return bool(np.bincount(step[inside], table["nbytes"][inside]).max() >= _LEAST_SHARE * _PARAMETER_BYTES * elements)


def _trained_elements(manifest: Manifest) -> int:
    """Elements of the parameters that the rank's optimizers update; 0: unknown."""
    optimizers = manifest.training.get("optimizers")
    known = [one for one in optimizers if isinstance(one, dict)] if isinstance(optimizers, list) else []
    return sum(int(group.get("elements", 0)) for one in known for group in one.get("groups", []))
