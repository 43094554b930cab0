"""By how much each quantity of two sides differs, with its noise.

What the machine explains is taken off.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from feedline.analysis.diff import side as code_shares
from feedline.analysis.diff.side import MEASURED, ComparedRun, Influence, Measure, Speed
from feedline.analysis.intervals import FloatArray
from feedline.analysis.measure.model import MIN_OTHERS
from feedline.analysis.measure.noise import p_of, reach
from feedline.analysis.measure.stages import INPUT_STAGES

# times: the machine does not explain that something takes a smaller part of what it took
_MAX_MACHINE_TIMES = 20.0
SIGNIFICANCE = 0.05  # of p values
CPU_OF_STEP = "step/cpu"
STEP, WAIT, TOTAL = "step/mean", "stage/wait", "sample/total"


@dataclass(frozen=True)
class Effect:
    """How a quantity differs.

    Attributes:
        before, after: means of the sides, as reported.
        change: B - A, without the machine's part.
        error: standard error of ``change``; NaN: not known.
        machine: B / A that the machine explains at most.
        freedom: degrees of freedom of ``error`` where runs were compared with each other; None:
            from one run of each.
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
        return max(0.0, 1 + (self.change - half) / self.before), 1 + (
            self.change + half
        ) / self.before


@dataclass(frozen=True)
class Sides:
    """Both sides, and how fast the machine was in each run.

    Attributes:
        more: CPUs that B could have used beyond those of A: it is allowed more, or other programs
            took less. NaN: not sampled.
    """

    before: Sequence[ComparedRun]
    after: Sequence[ComparedRun]
    speed: Speed
    more: float

    @classmethod
    def of(cls, before: Sequence[ComparedRun], after: Sequence[ComparedRun]) -> "Sides":
        rooms = [[_usable_cpus(run) for run in side] for side in (before, after)]
        known = [[cpus for cpus in side if cpus is not None] for side in rooms]
        more = float(np.mean(known[1]) - np.mean(known[0])) if known == rooms else math.nan
        return cls(before, after, Speed.of(before, after), more)

    @property
    def slows(self) -> bool:
        """Whether waiting for a CPU can make B slower without a change of the program.

        Where nothing was sampled, it may.
        """
        return not self.more > -MIN_OTHERS

    @property
    def speeds(self) -> bool:
        """The same of faster."""
        return not self.more < MIN_OTHERS

    @property
    def runs(self) -> list[ComparedRun]:
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
        common = self.machine_difference(
            [self.speed.of_run(at, id) for at in range(len(self.runs))]
        )
        return common if kind == Influence.CPU else common * self.on_cpu + self.queued

    @property
    def queued(self) -> float:
        """The part of it that is waiting for a CPU, for the main thread."""
        waiting = [run.waiting for run in self.runs]
        return (
            self.from_load([math.log(value) for value in waiting if value]) if all(waiting) else 0.0
        )

    def from_load(self, parts: Sequence[float]) -> float:
        """Return B - A of how long each run waited for CPUs.

        It counts in the direction in which what it had of them changed.
        """
        change = self.machine_difference(parts)
        return max(change, 0.0) * self.slows + min(change, 0.0) * self.speeds

    def machine_difference(self, parts: Sequence[float]) -> float:
        """Return B - A of what the machine did to each run.

        With several runs of each, their spread holds what the machine does from run to run, and
        only what differs between the sides is left to explain.
        """
        before, after = self._means(parts)
        if (
            self.freedom >= MEASURED
            and p_of(after - before, self._pooled(np.array(parts)), self.freedom) >= SIGNIFICANCE
        ):
            return 0.0
        return after - before

    def effect(self, id: str, machine_s: float | None = None) -> Effect:
        """Return how a quantity differs.

        The machine slows some stages down more than others, so that up to all of what it did to
        most of them may be its part of this one, in the direction in which it differs.

        Args:
            id: of the quantity.
            machine_s: seconds of B - A that the machine explains, where that is the sum of other
                quantities' parts.
        """
        measures = self.each(id)
        own = np.array([measure.value for measure in measures])
        base, after = self._means(own)
        most_s = (
            base * math.expm1(self.shift(measures[0].kind, id)) if machine_s is None else machine_s
        )
        part_s = min(max(after - base, min(most_s, 0.0)), max(most_s, 0.0))
        factor = max(base + part_s, base / _MAX_MACHINE_TIMES) / base if base > 0 else 1.0
        measured = self.freedom >= MEASURED
        error = self._spread(own, measures) if measured else self._estimated(own, measures)
        return Effect(
            measures[0],
            base,
            after,
            after / factor - base,
            error / factor,
            factor,
            self.freedom if measured else None,
        )

    def _within(self, own: FloatArray, measures: Sequence[Measure]) -> float:
        """Return the variance of the difference of means, from how each run's own values scatter."""
        variances = [
            float((value * measure.error) ** 2) if value else measure.unseen**2
            for value, measure in zip(own, measures)
        ]
        before, after = self._means(variances)
        return before / len(self.before) + after / len(self.after)

    def _spread(self, own: FloatArray, measures: Sequence[Measure]) -> float:
        """Return the standard error, from how runs of one side differ.

        Never below what each run's own values scatter by.
        """
        within = self._within(own, measures)
        return max(self._pooled(own), math.sqrt(within) if math.isfinite(within) else 0.0)

    def _pooled(self, values: FloatArray) -> float:
        """Return the standard error of the difference of means, for values that vary alike.

        They do so on both sides (Student's).
        """
        counts = len(self.before), len(self.after)
        groups = values[: counts[0]], values[counts[0] :]
        variance = (
            sum(float(((group - group.mean()) ** 2).sum()) for group in groups) / self.freedom
        )
        return math.sqrt(variance * (1 / counts[0] + 1 / counts[1]))

    def _estimated(self, own: FloatArray, measures: Sequence[Measure]) -> float:
        """Return the standard error, where run-to-run variation is estimated.

        Of CPU time it comes from how that of other stages differs, else from drift.
        """
        if measures[0].kind == Influence.CPU:
            between = (self.speed.scatter(measures[0].id) * float(own.mean())) ** 2
        else:
            least = self.speed.floor(measures[0].id) * float(own.mean())
            between = (
                float(sum((value * measure.drift) ** 2 for value, measure in zip(own, measures)))
                + least**2
            )
        return math.sqrt(self._within(own, measures) + between)


def effects_of(sides: Sides) -> dict[str, Effect]:
    """Return the effect of every quantity that all runs have, by its id.

    A quantity may be a part of one that they have.
    """
    ids = [
        id
        for id in dict.fromkeys(id for run in sides.runs for id in run.measures)
        if _comparable(sides, id)
    ]
    stages_s = {id: _machine_s(sides, id) for id in ids if id.startswith("stage/") and id != WAIT}
    if WAIT in ids:
        stages_s[WAIT] = _machine_of_wait(sides, stages_s)
    whole, all_s = sides.mean(STEP)[0] if STEP in ids else 0.0, sum(stages_s.values())

    def machine_s(id: str) -> float | None:
        of_step = (
            all_s * sides.mean(id)[0] / whole
            if id.startswith("step/") and id != CPU_OF_STEP and whole
            else None
        )
        return stages_s[WAIT] if id == WAIT else of_step

    return {id: sides.effect(id, machine_s(id)) for id in ids}


def _comparable(sides: Sides, id: str) -> bool:
    group = id.partition("/")[0]
    if group == "stage" and len({run.report.traces is None for run in sides.runs}) > 1:
        return False  # stages of a trace are others
    wholes = {"stage": STEP, "blocked": TOTAL, code_shares.CODE_OF_STEP: STEP}
    whole = {**wholes, code_shares.CODE_OF_SAMPLE: TOTAL}.get(group, id)
    return all(whole in run.measures for run in sides.runs)


def _machine_s(sides: Sides, id: str) -> float:
    """Return seconds of B - A of a stage's wall time that the machine explains."""
    if sides.each(id)[0].kind == Influence.NONE:
        return 0.0
    return sides.mean(id)[0] * math.expm1(sides.shift(Influence.THREAD, id))


def _machine_of_wait(sides: Sides, stages_s: Mapping[str, float]) -> float:
    """Return seconds of B - A of the wait that the machine explains.

    Batches take longer to make where the CPUs are slower or taken, and a step that takes longer
    hides more.
    """
    waited = sides.mean(WAIT)[0]
    making = [_making_s(run) for run in sides.runs]
    known = [value for value in making if value is not None]
    if len(known) < len(making):
        return 0.0
    count = len(sides.before)
    cpu_s, queued_s = (sum(parts) / count for parts in zip(*known[:count]))
    most_s = sum(queue for _, queue in known[count:]) / (len(known) - count)
    # per CPU second, so that waiting which only follows from more CPU work is not load
    per_cpu_s = sides.from_load([queue / cpu for cpu, queue in known])
    longer_s = min(cpu_s * per_cpu_s, most_s) + (cpu_s + queued_s) * math.expm1(
        sides.shift("cpu", TOTAL)
    )
    rest_s = sum(
        seconds for id, seconds in stages_s.items() if id.partition("/")[2] not in INPUT_STAGES
    )
    return max(longer_s - rest_s, -waited)


def _making_s(run: ComparedRun) -> tuple[float, float] | None:
    """Return the CPU seconds per step that making batches takes, by all workers at once.

    They include waiting for a CPU. None: the run has no workers.
    """
    workers, batch = run.report.workers, run.batch
    total = workers.per_sample.get("total") if workers is not None else None
    if (
        workers is None
        or not workers.processes
        or not batch
        or total is None
        or not total.cpu_s
        or total.runqueue_s is None
    ):
        return None
    step = run.report.step
    # 1 over the batch where times are per sample
    per = 1.0 if step is None or not step.mean_s else run.measures[STEP].value / step.mean_s
    return tuple(part * batch / workers.processes * per for part in (total.cpu_s, total.runqueue_s))  # type: ignore[return-value]


def _usable_cpus(run: ComparedRun) -> float | None:
    """Return the CPUs that a run could have used; None: not sampled.

    They are those that it is allowed, less what other programs took of them.
    """
    cpus = run.report.cpus
    if cpus is None or cpus.others is None or cpus.affinity is None:
        return None
    return min(cpus.allowed, cpus.affinity - cpus.others)
