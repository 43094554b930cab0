"""Steps that were only counted, and what those recorded in full say of them.

profiler/taps/recording_schedule.py decides which are. Three kinds of steps make the mean step.
Those that something happened in which is always told (an epoch began or ended, an evaluation, a
checkpoint, a compilation) stand for themselves. The other recorded ones stand for themselves and
for all that were counted; those before the first rest, in which caches warm up, only where there
are few others. But where the counted ones took longer than chance and the cost of recording
explain, as after rare long stalls, what they took longer is in a stage of its own: nothing tells in
which one it was. What recording a step in full costs, as the run itself has measured, is in no
figure: it lies at both ends of every span, and is taken off what is around that. A step that waits
for its input waits less while it is recorded, and after a rest the recording itself takes longer
than it does once it is in the caches, outside every span: where sampled stacks of the rests show
clearly more input, or clearly less outside of the model, its share is theirs.
"""

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from feedline.analysis.intervals import FloatArray, IntArray, parents
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
    origin,
    standing,
)
from feedline.analysis.measure.stages import INPUT_STAGES, OTHER, STAGE_OF_RECORD, UNATTRIBUTED
from feedline.analysis.measure.step_model import Sampled
from feedline.analysis.measure.steps import Steps, of_loss
from feedline.profiler.errors import FeedlineError
from feedline.profiler.events import Flag, Stage
from feedline.profiler.store.run_folder import Rank
from feedline.profiler.store.sampled_stacks import StackFrame
from feedline.profiler.store.segment_reader import Process
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
_MIN_RECORDED = 4  # recorded steps, or windows, that say something of others
_ENOUGH = 32  # recorded steps after the first rest, to do without those before it
_DRAWS = 400  # of the bootstrap
_UNSURE = 0.5  # of what recording a step in full costs: what that may be off by


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
class _Correction:
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


@dataclass(frozen=True)
class Counted:
    """Rests of one training process.

    Attributes:
        start, end: int64 [m], ns.
        steps: int64 [m].
        taken: loader -> batches and samples that it handed over in them.
        cost_ns: of CPU, of recording a step in full, as the run has measured it; None: it was too
            short for that.
    """

    start: IntArray
    end: IntArray
    steps: IntArray
    taken: Mapping[int, tuple[int, int]]
    cost_ns: float | None

    def numbers(self, start: IntArray) -> IntArray:
        """Return the number of each recorded step, int64 [n]: steps counted before it included.

        Args:
            start: int64 [n], ns: when they began.
        """
        before = np.concatenate([[0], np.cumsum(self.steps)])
        at = np.searchsorted(self.start, start, "left")
        return np.asarray(np.arange(len(start)) + before[at])

    @classmethod
    def of(cls, main: Process) -> "Counted":
        rests, taken = main.view(Stage.REST), main.view(Stage.TAKEN)
        rests = rests[np.argsort(rests["start"], kind="stable")]
        start, wall = rests["start"], np.maximum(rests["wall"], 0)
        loaders = np.unique(taken["source"]).tolist()
        sums = {loader: taken[taken["source"] == loader] for loader in loaders}
        by = {
            loader: (int(np.maximum(own["batches"], 0).sum()), int(own["samples"].sum()))
            for loader, own in sums.items()
        }
        return cls(
            start,
            start + wall,
            rests["steps"],
            by,
            float(rests["cost"][-1]) if len(rests) and rests["cost"][-1] > 0 else None,
        )

    @property
    def number(self) -> int:
        """Steps."""
        return int(self.steps.sum())

    @property
    def mean_ns(self) -> float:
        """Mean wall time of a step."""
        some = self.steps > 0
        return float((self.end - self.start)[some].sum()) / self.number

    def samples(self, loaders: frozenset[int]) -> int:
        """Return how many samples these loaders handed over."""
        return sum(samples for loader, (_, samples) in self.taken.items() if loader in loaders)


@dataclass(frozen=True)
class Estimate:
    """The mean step of a run whose steps were partly counted.

    Attributes:
        alike: bool [n], recorded steps that stand for the counted ones too.
        alone: bool [n], those that stand for themselves.
        wall: float64 [n], ns.
        window: int64 [n], in which stretch between rests each lies.
        longer: counted steps took longer than the alike ones, by more than chance and the cost of
            recording explain.
        cost_ns: what recording one of them in full took longer, 0 or more.
        lies: stage -> share of that which lies in it.
        corrections: what samples of the rests show otherwise than the alike steps.
    """

    counted: Counted
    alike: npt.NDArray[np.bool_]
    alone: npt.NDArray[np.bool_]
    cost_ns: float
    lies: Mapping[str, float]
    wall: FloatArray
    window: IntArray
    longer: bool = False
    corrections: tuple[_Correction, ...] = ()

    @classmethod
    def of(cls, main: Process, steps: Steps, first: int) -> "Estimate | None":
        """Read what the recorded steps say of the others.

        None: no step was only counted, or next to none was recorded.
        """
        counted = Counted.of(main)
        if not counted.number:
            return None
        after = np.arange(len(steps.wall)) >= first
        alike = after & ~_of_a_kind(main, steps)
        if alike.sum() < _MIN_RECORDED:
            alike = after
        if not alike.any():
            return None
        wall = steps.wall.astype(float)
        window = np.searchsorted(counted.start, steps.start, "left")
        if (alike & (window > 0)).sum() >= _ENOUGH:
            alike &= window > 0
        longer = max(float(wall[alike].mean()) - counted.mean_ns, 0.0)
        cost = min(
            longer if counted.cost_ns is None else counted.cost_ns, float(wall[alike].mean()) / 2
        )
        estimate = cls(counted, alike, after & ~alike, cost, _cost_lies(main), wall, window)
        most = float(np.quantile(estimate.drawn_walls(), 0.975)) - cost * (1 - _UNSURE)
        return replace(estimate, longer=counted.mean_ns > most)

    def corrected(
        self, stages: Mapping[str, IntArray | FloatArray], seen: RestSamples
    ) -> "Estimate":
        """Take from samples of the rests what these show clearly otherwise.

        Args:
            stages: of the steps.
            seen: of the rests.
        """
        if self.longer:
            return self
        own = self._without_cost(self._of_alike(stages))
        return replace(self, corrections=_corrections(own, seen))

    @property
    def stand_for(self) -> int:
        """Steps that the alike ones stand for, themselves too."""
        return int(self.alike.sum()) + self.counted.number

    @property
    def mean_ns(self) -> float:
        """Mean wall time of all steps, without what recording cost."""
        alone = self.wall[self.alone]
        return (float(alone.sum()) + self.stand_for * self.counted.mean_ns) / (
            len(alone) + self.stand_for
        )

    def means(self, stages: Mapping[str, IntArray | FloatArray]) -> dict[str, float]:
        """Return the mean of each stage over all steps, ns.

        They sum to ``mean_ns`` if the stages sum to the wall time.
        """
        own = self._without_cost(self._of_alike(stages))
        for correction in self.corrections:
            own = correction.applied(own)
        number = int(self.alone.sum()) + self.stand_for
        alone = {name: float(values[self.alone].sum()) for name, values in stages.items()}
        return {
            name: (alone.get(name, 0.0) + self.stand_for * value) / number
            for name, value in own.items()
        }

    def _of_alike(self, stages: Mapping[str, IntArray | FloatArray]) -> dict[str, float]:
        return {name: float(values[self.alike].mean()) for name, values in stages.items()}

    def unattributed_share(self, stages: Mapping[str, IntArray | FloatArray]) -> float:
        """Return the share (0 to 1) of the mean step that is in no stage."""
        return self.means(stages).get(UNATTRIBUTED, 0.0) / self.mean_ns if self.longer else 0.0

    def _without_cost(self, means: dict[str, float]) -> dict[str, float]:
        own = {
            name: max(value - self.cost_ns * self.lies.get(name, 0.0), 0.0)
            for name, value in means.items()
        }
        whole = sum(own.values())
        if self.longer and whole < self.counted.mean_ns:
            return own | {UNATTRIBUTED: self.counted.mean_ns - whole}
        scale = self.counted.mean_ns / (whole or 1.0)
        return {name: value * scale for name, value in own.items()}

    def walls(self) -> FloatArray:
        """Return the alike steps' own wall times, float64 [k], ns."""
        return np.maximum(self.wall[self.alike] - self.cost_ns, 0.0)

    def sampled(self, stages: Mapping[str, IntArray | FloatArray]) -> Sampled:
        """Return how sure the shares are."""
        drawn, windows = self.drawn(stages), len(np.unique(self.window[self.alike]))
        low, high = (
            {name: float(np.quantile(values, at)) for name, values in drawn.items()}
            for at in (0.025, 0.975)
        )
        return Sampled(
            self.counted.number, int(self.alike.sum()), windows, low, high, self.cost_ns / 1e9
        )

    def drawn(self, stages: Mapping[str, IntArray | FloatArray]) -> dict[str, FloatArray]:
        """Draw each stage's share of a counted step, float64 [_DRAWS].

        It is what the share could be if other windows had been recorded (bootstrap over windows).
        """
        of, draws = self._drawn()
        sums = {
            name: np.bincount(of, values[self.alike].astype(float))
            for name, values in stages.items()
        }
        sizes = draws @ np.bincount(of)
        usual = self._without_cost(self._of_alike(stages))
        random = np.random.default_rng(1)
        told = [  # samples tell these, not the steps that are drawn
            (one, one.odds(usual) * one.times * np.exp(random.normal(0.0, one.error, _DRAWS)))
            for one in self.corrections
        ]
        shares = {
            name: np.zeros(_DRAWS) for name in (*stages, *([UNATTRIBUTED] if self.longer else []))
        }
        for index, (row, size) in enumerate(zip(draws, sizes.tolist())):
            own = self._without_cost(
                {name: float(row @ values) / size for name, values in sums.items()}
            )
            for correction, odds in told:
                own = correction.with_odds(own, float(odds[index]))
            for name, value in own.items():
                shares[name][index] = value / self.counted.mean_ns
        return shares

    def drawn_walls(self) -> FloatArray:
        """Draw what the mean of the alike steps could be, with what recording costs.

        float64 [_DRAWS], ns.
        """
        of, draws = self._drawn()
        return np.asarray(
            draws @ np.bincount(of, self.wall[self.alike]) / (draws @ np.bincount(of))
        )

    def _drawn(self) -> tuple[IntArray, IntArray]:
        """Return the group of each alike step, int64 [k], and how often each group is drawn.

        The draws are int64 [_DRAWS, groups]. Groups are windows, where there are some, else steps.
        """
        groups = np.unique(self.window[self.alike])
        by_window = len(groups) >= _MIN_RECORDED
        of = (
            np.searchsorted(groups, self.window[self.alike])
            if by_window
            else np.arange(int(self.alike.sum()))
        )
        number = int(of.max()) + 1
        return of, np.random.default_rng(0).multinomial(number, np.full(number, 1 / number), _DRAWS)


def _cost_lies(main: Process) -> dict[str, float]:
    """Return the share of what recording costs that lies in each stage.

    That of a span lies in the one that it is in; of an outermost one, between it and its neighbors.
    Each span counts alike, but for those of gradients, which cost a tenth of a model's.
    """
    stages = [stage for stage in STAGE_OF_RECORD if stage is not Stage.GRADIENTS]
    spans = main.records[(main.records["thread"] == 0) & np.isin(main.records["stage"], stages)]
    spans = spans[np.argsort(spans["start"], kind="stable")]
    above = parents(spans["start"], spans["wall"])
    cost = Counter(
        STAGE_OF_RECORD[Stage(stage)] for stage in spans["stage"][above[above >= 0]].tolist()
    )
    outer = spans[above < 0]
    losses = int(of_loss(outer["stage"], outer["flags"]).sum())
    cost.update({"loss": losses, "other": len(outer) - losses})
    cost["dataset"] += cost.pop("samples", 0)
    return {name: number / len(spans) for name, number in cost.items() if number}


def _of_a_kind(main: Process, steps: Steps) -> npt.NDArray[np.bool_]:
    """Mark the steps in which something happened that is always told, bool [n]."""
    ends = main.of(Stage.NEXT)
    ends = ends[ends["flags"] & Flag.END != 0]
    moments = np.concatenate(
        [main.of(Stage.EPOCH, Stage.CHECKPOINT, Stage.COMPILE, Stage.WOKEN)["start"], ends["start"]]
    )
    at = steps.boundaries.step_of(moments)
    special = np.zeros(len(steps.start), bool)
    special[at[at >= 0]] = True
    return special


def _corrections(stages: Mapping[str, float], seen: RestSamples) -> tuple[_Correction, ...]:
    """Return what samples show clearly otherwise than recorded steps do.

    Args:
        stages: of the mean recorded step, without what recording costs, ns.
        seen: of the rests.
    """
    found = (_more_input(stages, seen), _less_between(stages, seen))
    return tuple(correction for correction in found if correction is not None)


def _less_between(stages: Mapping[str, float], seen: RestSamples) -> _Correction | None:
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
    return _Correction(_BETWEEN, frozenset(own) - _BETWEEN, times, min(unsure, _MOST_UNSURE))


def _more_input(stages: Mapping[str, float], seen: RestSamples) -> _Correction | None:
    inside = frozenset(INPUT_STAGES)
    share, shown = seen.of_input / seen.number, _share(stages, inside)
    if not 0 < share < 1 or not 0 < shown < 1 or share - shown < CLEARLY:
        return None
    error = 1 / math.sqrt(seen.number * share * (1 - share))
    times = share / (1 - share) / (shown / (1 - shown))
    return _Correction(inside, None, times, error) if math.log(times) >= _SURE * error else None


def _share(stages: Mapping[str, float], of: frozenset[str]) -> float:
    return sum(ns for name, ns in stages.items() if name in of) / (sum(stages.values()) or 1.0)


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


def _is_neither(frames: Sequence[StackFrame]) -> bool:
    files = (origin(frame.file) for frame in frames)
    return any(
        whose.owner == owner and whose.tail.startswith(file)
        for whose in files
        for owner, file in _NEITHER
    )
