"""What sampled stacks say of steps that were only counted: how much of them is the input.

A sample costs the training nothing, where recording a step in full takes time from what it waits.
"""

from typing import NamedTuple

import numpy as np

from feedline.analysis.measure.code_places import (
    MAKING,
    SAMPLER,
    START,
    WAIT,
    is_recording,
    standing,
)
from feedline.analysis.measure.counted_steps import Counted
from feedline.profiler.errors import FeedlineError
from feedline.profiler.store.run_folder import Rank
from feedline.profiler.store.stack_format import MAIN
from feedline.profiler.store.stacks_reader import read_stacks

_INPUT = frozenset((WAIT, START, SAMPLER, *MAKING))
_MIN_SAMPLES = 100


class SampledInput(NamedTuple):
    """How much of the main thread's time the input takes, by samples.

    Attributes:
        share: 0 to 1, both excluded.
        samples: of which it is.
    """

    share: float
    samples: int


def input_in_rests(rank: Rank, counted: Counted) -> SampledInput | None:
    """Return what samples of the main thread in rests say; None: too few, or stacks are damaged."""
    try:
        processes = read_stacks(rank)
    except FeedlineError:  # the report notes it
        return None
    number = of_input = 0
    for process in processes:
        for stack in process.stacks if process.kind == MAIN else ():
            if stack.thread != "main" or is_recording(stack.frames):
                continue
            moments = np.array(stack.moments, np.int64)
            rest = np.searchsorted(counted.start, moments, "right") - 1
            inside = int(((rest >= 0) & (moments < counted.end[rest])).sum())
            number += inside
            if inside and standing(stack.frames).place in _INPUT:
                of_input += inside
    if number < _MIN_SAMPLES or not 0 < of_input < number:
        return None
    return SampledInput(of_input / number, number)
