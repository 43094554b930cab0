"""What sampled stacks say of steps that were only counted: how their time divides.

A sample costs the training nothing, where recording a step in full takes time from what it waits,
and more time, outside of all stages, after a rest than once it is in the caches.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from feedline.analysis.intervals import IntArray
from feedline.analysis.measure.code_frames import origin
from feedline.analysis.measure.code_places import (
    BACKWARD,
    FORWARD,
    GRADIENTS,
    LOSS,
    MAKING,
    OPTIMIZER,
    SAMPLER,
    START,
    WAIT,
    is_recording,
    standing,
)
from feedline.analysis.measure.stages import INPUT_STAGES, OTHER
from feedline.profiler.errors import FeedlineError
from feedline.profiler.store.run_folder import Rank
from feedline.profiler.store.sampled_stacks import StackFrame
from feedline.profiler.store.stack_format import MAIN
from feedline.profiler.store.stacks_reader import read_stacks

_INPUT = frozenset((WAIT, START, SAMPLER, *MAKING))
#: Places of samples that are stages of the same name. In samples, a loss from a plain function looks
#: like the loop's own lines, so they correct less.
_MODEL = frozenset((FORWARD, LOSS, BACKWARD, GRADIENTS, OPTIMIZER))
_BETWEEN = frozenset((OTHER,))  # what lies between spans, with the recording's own work
#: Whose code stands in a model or in the wait by its frames, and has a stage of its own or none:
#: torchmetrics, and pinning in the main process.
_NEITHER = (("torchmetrics", ""), ("torch", "utils/data/_utils/pin_memory.py"))
_MIN_SAMPLES = 100
_MIN_OUTSIDE = 30  # samples that are not of the input
#: Of the step: by how much samples must differ from recorded steps.
CLEARLY = 0.05
_SURE = 2.0  # standard errors by which they must
_LEAST = 0.05  # of what recorded steps show between spans: so much always remains there
_MOST_UNSURE = 1.0  # of the logarithm of odds: more says nothing


class RestSamples(NamedTuple):
    """Samples of the main thread in rests.

    Attributes:
        number: all of them.
        of_input: of these, in the input.
        of_model: in models, losses, backward passes and torch's optimizers.
    """

    number: int
    of_input: int
    of_model: int


@dataclass(frozen=True)
class Correction:
    """What samples tell better than steps that were recorded.

    Attributes:
        inside: stages whose share of time it is.
        outside: of which they are a share, beside themselves; None: of all stages.
        times: the odds of that share are that many times those of the recorded steps.
        error: standard error of its logarithm.
    """

    inside: frozenset[str]
    outside: frozenset[str] | None
    times: float
    error: float

    def odds(self, stages: Mapping[str, float]) -> float:
        """Return the time inside over that outside; inf: there is nothing outside."""
        within, beside = self._sums(stages)
        return within / beside if beside > 0 else math.inf

    def with_odds(self, stages: dict[str, float], odds: float) -> dict[str, float]:
        """Stretch what is inside and shrink what is outside, or the other way round.

        The sum stays.
        """
        within, beside = self._sums(stages)
        if not within > 0 or not beside > 0:
            return stages
        both = within + beside
        scales = {True: both * odds / (1 + odds) / within, False: both / (1 + odds) / beside}
        return {
            name: ns * scales[name in self.inside] if self._concerns(name) else ns
            for name, ns in stages.items()
        }

    def applied(self, stages: dict[str, float]) -> dict[str, float]:
        """Return the stages as samples show them; their sum stays."""
        return self.with_odds(stages, self.odds(stages) * self.times)

    def _concerns(self, stage: str) -> bool:
        return self.outside is None or stage in self.inside or stage in self.outside

    def _sums(self, stages: Mapping[str, float]) -> tuple[float, float]:
        within = sum(ns for name, ns in stages.items() if name in self.inside)
        return within, sum(
            ns for name, ns in stages.items() if name not in self.inside and self._concerns(name)
        )


def corrections(stages: Mapping[str, float], seen: RestSamples) -> tuple[Correction, ...]:
    """Return what samples show clearly otherwise than recorded steps do.

    Args:
        stages: of the mean recorded step, without what recording costs, ns.
        seen: of the rests.
    """
    found = (_more_input(stages, seen), _less_between(stages, seen))
    return tuple(correction for correction in found if correction is not None)


def _less_between(stages: Mapping[str, float], seen: RestSamples) -> Correction | None:
    """Return how much less lies between spans, of what is not the input.

    Samples there and in spans that no function of torch's tells (copies, the program's own stages)
    look alike: these keep their proportion to the model's.
    """
    own = {name: ns for name, ns in stages.items() if name not in INPUT_STAGES}
    whole, number = sum(own.values()), seen.number - seen.of_input
    if not whole > 0 or number < _MIN_OUTSIDE:
        return None
    model, between = _share(own, _MODEL), _share(own, _BETWEEN)
    seen_model = seen.of_model / number
    more, error = seen_model - model, math.sqrt(seen_model * (1 - seen_model) / number)
    if not 0 < model < 1 or not 0 < between < 1 or more < _SURE * error:
        return None
    if more * whole < CLEARLY * sum(stages.values()):
        return None
    told = max(1 - (1 - between) * seen_model / model, _LEAST * between)
    times = told / (1 - told) / (between / (1 - between))
    unsure = error * (1 - between) / model / (told * (1 - told))
    return Correction(_BETWEEN, frozenset(own) - _BETWEEN, times, min(unsure, _MOST_UNSURE))


def _more_input(stages: Mapping[str, float], seen: RestSamples) -> Correction | None:
    inside = frozenset(INPUT_STAGES)
    share, shown = seen.of_input / seen.number, _share(stages, inside)
    if not 0 < share < 1 or not 0 < shown < 1 or share - shown < CLEARLY:
        return None
    error = 1 / math.sqrt(seen.number * share * (1 - share))
    times = share / (1 - share) / (shown / (1 - shown))
    return Correction(inside, None, times, error) if math.log(times) >= _SURE * error else None


def _share(stages: Mapping[str, float], of: frozenset[str]) -> float:
    return sum(ns for name, ns in stages.items() if name in of) / (sum(stages.values()) or 1.0)


def _is_neither(frames: Sequence[StackFrame]) -> bool:
    files = (origin(frame.file) for frame in frames)
    return any(
        whose.owner == owner and whose.tail.startswith(file)
        for whose in files
        for owner, file in _NEITHER
    )


def samples_in_rests(rank: Rank, start: IntArray, end: IntArray) -> RestSamples | None:
    """Return where samples of the main thread in rests stand.

    None: they are too few, or the stacks are damaged.

    Args:
        start, end: of the rests, int64 [m], ns, ascending.
    """
    try:
        processes = read_stacks(rank)
    except FeedlineError:  # the report notes it
        return None
    number = of_input = of_model = 0
    for process in processes:
        for stack in process.stacks if process.kind == MAIN else ():
            if stack.thread != "main" or is_recording(stack.frames):
                continue
            moments = np.array(stack.moments, np.int64)
            rest = np.searchsorted(start, moments, "right") - 1
            inside = int(((rest >= 0) & (moments < end[rest])).sum())
            number += inside
            place = standing(stack.frames).place if inside and not _is_neither(stack.frames) else ""
            of_input += inside if place in _INPUT else 0
            of_model += inside if place in _MODEL else 0
    return RestSamples(number, of_input, of_model) if number >= _MIN_SAMPLES else None
