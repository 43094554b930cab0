"""How each quantity differs between the sides: by how much without the machine's part, with an interval."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from feedline.analysis.diff.side import Influence, Measure, MeasuredRun, Speed, room
from feedline.analysis.measure.cpu_use import MIN_OTHERS
from feedline.analysis.measure.noise import FloatArray, p_of, reach

_MAX_MACHINE_TIMES = 20.0  # times: the machine does not explain that something takes a smaller part of what it took
LEVEL = 0.05  # of p values
MEASURED = 2  # degrees of freedom, from which on run-to-run variation is measured


@dataclass(frozen=True)
class Effect:
    """How a quantity differs.

    Attributes:
        before, after: means of the sides, as reported.
        change: B - A, without the machine's part.
        error: standard error of ``change``; NaN: not known.
        machine: B / A that the machine explains at most.
        freedom: degrees of freedom of ``error`` where runs were compared with each other; None: from one run of each.
    """

    measure: Measure
    before: float
    after: float
    change: float
    error: float
    machine: float
    freedom: int | None = None

    @property
    def p(self) -> float:
        return p_of(self.change, self.error, self.freedom)

    @property
    def p_measured(self) -> float:
        """The same with the machine's part."""
        return p_of(self.after - self.before, self.error * self.machine, self.freedom)

    @property
    def ratio(self) -> float | None:
        """B / A; None: A is zero."""
        return max(1 + self.change / self.before, 0.0) if self.before > 0 else None

    @property
    def interval(self) -> tuple[float | None, float | None]:
        """Of the ratio, 95 %."""
        half = reach(self.error, self.freedom)
        if self.before <= 0 or not math.isfinite(half):
            return None, None
        return max(0.0, 1 + (self.change - half) / self.before), 1 + (self.change + half) / self.before


@dataclass(frozen=True)
class Sides:
    """Both sides, and how fast the machine was in each run.

    Attributes:
        more: CPUs that B could have used beyond those of A: it is allowed more, or other programs took less. NaN: not sampled.
    """

    before: Sequence[MeasuredRun]
    after: Sequence[MeasuredRun]
    speed: Speed
    more: float

    @classmethod
    def of(cls, before: Sequence[MeasuredRun], after: Sequence[MeasuredRun]) -> "Sides":
        rooms = [[room(run) for run in side] for side in (before, after)]
        known = [[measure for measure in side if measure is not None] for side in rooms]
        more = float(np.mean(known[1]) - np.mean(known[0])) if known == rooms else math.nan
        return cls(before, after, Speed.of(before, after), more)

    @property
    def slows(self) -> bool:
        """Whether waiting for a CPU can make B slower without a change of the program; where nothing was sampled, it may."""
        return not self.more > -MIN_OTHERS

    @property
    def speeds(self) -> bool:
        """The same of faster."""
        return not self.more < MIN_OTHERS

    @property
    def runs(self) -> list[MeasuredRun]:
        return [*self.before, *self.after]

    @property
    def freedom(self) -> int:
        """Degrees of freedom of the variation between runs of a side."""
        return len(self.before) + len(self.after) - 2

    def each(self, id: str) -> list[Measure]:
        """Return a quantity in every run.

        A stage that does not occur in one takes no time there.
        """
        known = next(run.measures[id] for run in self.runs if id in run.measures)
        return [run.measures.get(id, known.absent()) for run in self.runs]

    def mean(self, id: str) -> tuple[float, float]:
        """Return the means of both sides, as reported."""
        return self._means([measure.value for measure in self.each(id)])

    def _means(self, values: Sequence[float] | FloatArray) -> tuple[float, float]:
        cut = len(self.before)
        return float(np.mean(values[:cut])), float(np.mean(values[cut:]))

    @property
    def on_cpu(self) -> bool:
        """Whether the main thread's own stages are made of CPU time."""
        return all("cpu/forward" in run.measures for run in self.runs)

    def shift(self, kind: str, id: str = "") -> float:
        """Return the logarithm of B over A that the machine explains."""
        if kind == Influence.NONE:
            return 0.0
        common = self.machine_difference([self.speed.of_run(at, id) for at in range(len(self.runs))])
        return common if kind == Influence.CPU else common * self.on_cpu + self.queued

    @property
    def queued(self) -> float:
        """The part of it that is waiting for a CPU, for the main thread."""
        waiting = [run.waiting for run in self.runs]
        return self.from_load([math.log(measure) for measure in waiting if measure]) if all(waiting) else 0.0

    def from_load(self, parts: Sequence[float]) -> float:
        """Return B - A of how long each run waited for CPUs.

        It counts in the direction in which what it had of them changed.
        """
        change = self.machine_difference(parts)
        return max(change, 0.0) * self.slows + min(change, 0.0) * self.speeds

    def machine_difference(self, parts: Sequence[float]) -> float:
        """Return B - A of what the machine did to each run.

        With several runs of each, their spread holds what the machine does from run to run, and only what differs between the sides is
        left to explain.
        """
        before, after = self._means(parts)
        if self.freedom >= MEASURED and p_of(after - before, self._pooled(np.array(parts)), self.freedom) >= LEVEL:
            return 0.0
        return after - before

    def effect(self, id: str, machine_s: float | None = None) -> Effect:
        """Return how a quantity differs.

        The machine slows some stages down more than others, so that up to all of what it did to most of them may be its part of this
        one, in the direction in which it differs.

        Args:
            id: of the quantity.
            machine_s: seconds of B - A that the machine explains, where that is the sum of other quantities' parts.
        """
        measures = self.each(id)
        own = np.array([measure.value for measure in measures])
        base, after = self._means(own)
        most_s = base * math.expm1(self.shift(measures[0].kind, id)) if machine_s is None else machine_s
        part_s = min(max(after - base, min(most_s, 0.0)), max(most_s, 0.0))
        factor = max(base + part_s, base / _MAX_MACHINE_TIMES) / base if base > 0 else 1.0
        measured = self.freedom >= MEASURED
        error = self._spread(own, measures) if measured else self._estimated(own, measures)
        return Effect(measures[0], base, after, after / factor - base, error / factor, factor, self.freedom if measured else None)

    def _within(self, own: FloatArray, measures: Sequence[Measure]) -> float:
        """Variance of the difference of means, from how each run's own values scatter."""
        variances = [float((value * measure.error) ** 2) if value else 0.0 for value, measure in zip(own, measures)]
        before, after = self._means(variances)
        return before / len(self.before) + after / len(self.after)

    def _spread(self, own: FloatArray, measures: Sequence[Measure]) -> float:
        """Return the standard error, from how runs of one side differ.

        Never below what each run's own values scatter by.
        """
        within = self._within(own, measures)
        return max(self._pooled(own), math.sqrt(within) if math.isfinite(within) else 0.0)

    def _pooled(self, values: FloatArray) -> float:
        """Return the standard error of the difference of means, for values that vary alike on both sides (Student's)."""
        counts = len(self.before), len(self.after)
        groups = values[: counts[0]], values[counts[0] :]
        variance = sum(float(((group - group.mean()) ** 2).sum()) for group in groups) / self.freedom
        return math.sqrt(variance * (1 / counts[0] + 1 / counts[1]))

    def _estimated(self, own: FloatArray, measures: Sequence[Measure]) -> float:
        """Return the standard error, where run-to-run variation is estimated.

        Of CPU time it comes from how that of other stages differs, else from drift.
        """
        if measures[0].kind == Influence.CPU:
            between = (self.speed.scatter(measures[0].id) * float(own.mean())) ** 2
        else:
            least = self.speed.floor(measures[0].id) * float(own.mean())
            between = float(sum((value * measure.drift) ** 2 for value, measure in zip(own, measures))) + least**2
        return math.sqrt(self._within(own, measures) + between)
