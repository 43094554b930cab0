"""What the GPU took for the stages of a step, between marks in its own work."""

import numpy as np

from feedline.analysis.intervals import IntArray
from feedline.analysis.measure.steps import Steps
from feedline.profiler.events import Stage
from feedline.profiler.store.segment_reader import Process


def gpu_stages(main: Process, steps: Steps, first: int) -> dict[str, float] | None:
    """Return the mean seconds per step of the GPU by stage; None when no GPU was timed.

    A stage's mean is over the steps all of whose records of that stage were timed: not those whose
    events were read after a window ended.

    Args:
        first: index of the first step that counts.
    """
    timed = main.view(Stage.GPU)
    begin, end = steps.start[first:], steps.boundaries.end[first:]
    means: dict[str, float] = {}
    for number in sorted(set(timed["of_stage"].tolist())):
        hosts = main.of(Stage(number))
        marks = timed[timed["of_stage"] == number]
        step = _step_of(marks["host_start"], begin, end)
        counts = np.bincount(step[step >= 0], minlength=len(begin))
        wanted = _step_of(hosts["start"], begin, end)
        whole = (counts > 0) & (counts == np.bincount(wanted[wanted >= 0], minlength=len(begin)))
        if whole.any():
            spent = np.bincount(step[step >= 0], marks["wall"][step >= 0], len(begin))
            means[Stage(number).name.lower()] = float(spent[whole].mean()) / 1e9
    return means or None


def _step_of(times: IntArray, begin: IntArray, end: IntArray) -> IntArray:
    """Return the index of the step that each time lies in, or -1."""
    step = np.searchsorted(begin, times, "right") - 1
    return np.where((step >= 0) & (times < np.append(end, 0)[step]), step, -1)
