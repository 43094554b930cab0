"""Gradients that are computed after an update and cleared before the next one, so that none uses them."""

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from feedline.analysis.intervals import IntArray, holds
from feedline.analysis.measure.clues import UnusedGradients
from feedline.analysis.measure.code_frames import program_frames, within_the_program
from feedline.analysis.measure.code_tree import MAIN
from feedline.profiler.events import Stage
from feedline.profiler.store.sampled_stacks import ProcessStacks
from feedline.profiler.store.segment_reader import Process

_FEWEST = 8  # updates: a first one may be of another kind
_MOST = 0.5  # of the updates of an optimizer, and of the samples at one line
_FEWEST_SAMPLES = 5


def unused_gradients(
    main: Process, training: Mapping[str, Any], stacks: Sequence[ProcessStacks]
) -> UnusedGradients | None:
    """Return the gradients of most parameters that are dropped with most updates; None: none are.

    Args:
        training: what the manifest tells of it.
    """
    cleared, updates = main.view(Stage.GRADIENTS), main.of(Stage.OPTIMIZER)
    cleared = cleared[
        (cleared["unused_elements"] > 0) & (cleared["number"] >= 0) & (cleared["thread"] == 0)
    ]
    found = []
    for number in np.unique(cleared["number"]).tolist():
        of, made = (records[records["number"] == number] for records in (cleared, updates))
        if len(made) >= _FEWEST and len(of) > _MOST * len(made):
            found.append((int(np.median(of["unused_elements"])), of, made))
    if not found:
        return None
    elements, of, made = max(found, key=lambda one: one[0])
    passes = _passes_between(main, made, of["start"])
    if not len(passes):
        return None
    backward_s = float((passes[:, 1] - passes[:, 0]).sum()) / len(of) / 1e9
    return UnusedGradients(elements, _share(elements, training), backward_s, _line(passes, stacks))


def _passes_between(main: Process, updates: Any, cleared: IntArray) -> IntArray:
    """Return the backward passes between an update and the clearing after it, int64 [n, 2], ns."""
    ends = np.sort(updates["start"] + updates["wall"])
    last = np.searchsorted(ends, cleared, "right") - 1
    gaps = np.stack([ends[np.maximum(last, 0)], cleared], 1)[last >= 0]
    backward = main.of(Stage.BACKWARD)
    backward = backward[backward["thread"] == 0]
    inside = holds(gaps[np.argsort(gaps[:, 0])], backward["start"])
    begun = backward["start"][inside]
    return np.stack([begun, begun + backward["wall"][inside]], 1)


def _share(elements: int, training: Mapping[str, Any]) -> float:
    listed = training.get("optimizers")
    groups = [
        group
        for one in (listed if isinstance(listed, list) else [])
        for group in one.get("groups") or []
    ]
    whole = sum(int(group.get("elements", 0)) for group in groups)
    return min(1.0, elements / whole) if whole else 0.0


def _line(passes: IntArray, stacks: Sequence[ProcessStacks]) -> str:
    """Return file and line of the program at which most samples in these passes are."""
    lines: Counter[tuple[str, int]] = Counter()
    for process in stacks:
        for stack in process.stacks if process.kind == MAIN else ():
            moments = np.array(stack.moments, np.int64)
            number = int(holds(passes, moments).sum()) if len(moments) else 0
            frames = program_frames(within_the_program(stack.frames)) if number else ()
            if frames:
                lines[frames[-1].key[0], frames[-1].line] += number
    place, most = max(lines.items(), key=lambda pair: pair[1], default=(("", 0), 0))
    if most < _FEWEST_SAMPLES or most < _MOST * lines.total():
        return ""
    return f"{place[0]}:{place[1]}"
