"""What a rank was doing, as phases that do not overlap."""

import numpy as np

from feedline.analysis.comm.collectives import Collectives
from feedline.analysis.comm.partition import BLOCKED, without
from feedline.analysis.stages import PHASE_OF
from feedline.analysis.timeline import IntArray

OTHER = "other"  # what nobody claims

#: Who claims a moment first, where spans lie inside each other: a copy inside a forward, a forward inside a backward (checkpointing).
_INNER_FIRST = ("checkpoint", "compile", "copy", "wait", "forward", "optimizer", "backward")


def phase_spans(one: Collectives) -> dict[str, IntArray]:
    """Phase -> int64 [k, 2], ns, own time: disjoint and in order, within a phase and between them."""
    together: dict[str, list[IntArray]] = {}
    for stage, spans in one.stages.items():
        if stage != BLOCKED:
            together.setdefault(PHASE_OF.get(stage, stage), []).append(spans.reshape(-1, 2))
    own = [phase for phase in together if phase not in _INNER_FIRST]
    claimed = np.zeros((0, 2), np.int64)
    found = {}
    for phase in [*own, *(phase for phase in _INNER_FIRST if phase in together)]:
        spans = np.concatenate(together[phase])
        found[phase] = without(spans, claimed)
        claimed = np.concatenate([claimed, spans])
    return found
