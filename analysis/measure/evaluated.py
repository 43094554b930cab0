"""The line of the training loop at which a program evaluates, from sampled stacks."""

from collections import Counter
from collections.abc import Sequence

import numpy as np

from feedline.analysis.intervals import IntArray, holds
from feedline.analysis.measure.code_frames import program_frames, within_the_program
from feedline.analysis.measure.code_tree import MAIN, SampledCode
from feedline.profiler.store.sampled_stacks import ProcessStacks

_FEWEST = 5  # samples in evaluations
_MOST = 0.5  # of them: evaluations at several lines have none that is told


def evaluating_line(
    evaluation: IntArray, code: SampledCode | None, stacks: Sequence[ProcessStacks]
) -> str:
    """Return file and line, as in ``train.py:31``; empty: too few samples show it.

    Args:
        evaluation: int64 [n, 2], ns, disjoint and sorted.
        code: of the same stacks.
    """
    if code is None or code.loop is None or not len(evaluation):
        return ""
    lines: Counter[int] = Counter()
    for process in stacks:
        for stack in process.stacks if process.kind == MAIN else ():
            moments = np.array(stack.moments, np.int64)
            number = int(holds(evaluation, moments).sum()) if len(moments) else 0
            if number:
                frames = program_frames(within_the_program(stack.frames))
                lines.update({frame.line: number for frame in frames if frame.key == code.loop})
    line, most = max(lines.items(), key=lambda pair: pair[1], default=(0, 0))
    if most < _FEWEST or most < _MOST * lines.total():
        return ""
    return f"{code.loop[0]}:{line}"
