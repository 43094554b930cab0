"""Compare two sides: which quantities changed by more than noise.

What the machine explains is taken off.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from feedline.analysis.diff import code_shares, context
from feedline.analysis.diff.conclusion import cause_of, conclude_diff
from feedline.analysis.diff.run_diff import MachineChange, Outcome, Quantity, RunDiff
from feedline.analysis.diff.side import (
    CPU_TIMED_STAGES,
    MEASURED,
    OF_CODE,
    OF_STEP,
    Influence,
    Measure,
    MeasuredRun,
    Speed,
    of_equal_work,
    per_sample,
    same_processes,
    usable_cpus,
    without_code,
)
from feedline.analysis.measure.cpu_use import MIN_OTHERS
from feedline.analysis.measure.noise import FloatArray, holm, p_of, reach
from feedline.analysis.measure.stages import INPUT_STAGES

_MAX_MACHINE_TIMES = (
    20.0  # times: the machine does not explain that something takes a smaller part of what it took
)
_SIGNIFICANCE = 0.05  # of p values
_MIN_CHANGE = 0.05
_MATERIAL = 0.02  # of the step, or of a sample: a change that makes less of it does not matter
_WORK_OF = {"sample/decode": "work/decoded_pixels"}  # quantity -> what decides how long it takes
_CPU_OF_STEP = "step/cpu"
_STEP, _WAIT, _TOTAL = "step/mean", "stage/wait", "sample/total"
_TOTALS = (_STEP, _TOTAL)
_MAX_LOAD_SHARE = (
    0.5  # of the step: more than that beyond the waiting that was measured is not put down to load
)
#: Groups that other programs hardly change: what changes of them is the program's own.
_PROGRAM_GROUPS = ("cpu", "sample", "blocked", "work")
_OF_PROGRAM = (
    "memory/processes",
    "gpu",
)  # gauges of the program; the others are of the machine, which other programs use too
_REPORT_ORDER = (
    "step",
    "stage",
    "cpu",
    "sample",
    "blocked",
    *OF_CODE,
    "work",
    "wait",
    "collective",
    "gauge",
)  # in the order of reports
#: Families of tests: groups, or single quantities. Gauges and waits are reported as context, never
#: as a cause.
_TEST_FAMILIES = (
    (_STEP,),
    (_TOTAL,),
    ("step",),
    ("stage",),
    ("cpu",),
    ("sample", "blocked"),
    OF_CODE,
    ("wait",),
    ("work",),
    ("gauge",),
    ("collective",),
)


@dataclass(frozen=True)
class _Effect:
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
class _Sides:
    """Both sides, and how fast the machine was in each run.

    Attributes:
        more: CPUs that B could have used beyond those of A: it is allowed more, or other programs
            took less. NaN: not sampled.
    """

    before: Sequence[MeasuredRun]
    after: Sequence[MeasuredRun]
    speed: Speed
    more: float

    @classmethod
    def of(cls, before: Sequence[MeasuredRun], after: Sequence[MeasuredRun]) -> "_Sides":
        rooms = [[usable_cpus(run) for run in side] for side in (before, after)]
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
            and p_of(after - before, self._pooled(np.array(parts)), self.freedom) >= _SIGNIFICANCE
        ):
            return 0.0
        return after - before

    def effect(self, id: str, machine_s: float | None = None) -> _Effect:
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
        return _Effect(
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
            float((value * measure.error) ** 2) if value else 0.0
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


def diff(
    before: Sequence[MeasuredRun], after: Sequence[MeasuredRun], min_change: float = _MIN_CHANGE
) -> RunDiff:
    """Compare runs.

    Args:
        before: one run or more.
        after: one run or more.
        min_change: share by which a quantity has to change to count.
    """
    by_sample = per_sample(before, after)
    if any(run.report.user_code is None for run in (*before, *after)):
        before, after = [without_code(run) for run in before], [without_code(run) for run in after]
    if by_sample:
        before, after = (
            [of_equal_work(run) for run in before],
            [of_equal_work(run) for run in after],
        )
    sides = _Sides.of(before, after)
    quantities = _with_own_changes(sides, _judged(sides, _effects_of(sides), min_change))
    result = RunDiff(
        before=[run.name for run in before],
        after=[run.name for run in after],
        conclusion="",
        per="sample" if by_sample else "step",
        min_change=min_change,
        between="measured" if sides.freedom >= MEASURED else "drift",
        cause=cause_of(quantities, before[0], after[0], by_sample),
        quantities=quantities,
        machine=_machine_of(sides),
        findings=context.changed_findings(before, after),
        settings=context.differing_settings(before, after),
        notes=context.comparison_notes(before, after),
    )
    return replace(result, conclusion=conclude_diff(result, before, after))


def _effects_of(sides: _Sides) -> dict[str, _Effect]:
    """Return the effect of every quantity that all runs have, by its id.

    A quantity may be a part of one that they have.
    """
    ids = [
        id
        for id in dict.fromkeys(id for run in sides.runs for id in run.measures)
        if _comparable(sides, id)
    ]
    stages_s = {id: _machine_s(sides, id) for id in ids if id.startswith("stage/") and id != _WAIT}
    if _WAIT in ids:
        stages_s[_WAIT] = _machine_of_wait(sides, stages_s)
    whole, all_s = sides.mean(_STEP)[0] if _STEP in ids else 0.0, sum(stages_s.values())

    def machine_s(id: str) -> float | None:
        of_step = (
            all_s * sides.mean(id)[0] / whole
            if id.startswith("step/") and id != _CPU_OF_STEP and whole
            else None
        )
        return stages_s[_WAIT] if id == _WAIT else of_step

    return {id: sides.effect(id, machine_s(id)) for id in ids}


def _comparable(sides: _Sides, id: str) -> bool:
    group = id.partition("/")[0]
    if group == "stage" and len({run.report.traces is None for run in sides.runs}) > 1:
        return False  # stages of a trace are others
    wholes = {"stage": _STEP, "blocked": _TOTAL, code_shares.OF_STEP: _STEP}
    whole = {**wholes, code_shares.OF_SAMPLE: _TOTAL}.get(group, id)
    return all(whole in run.measures for run in sides.runs)


def _machine_s(sides: _Sides, id: str) -> float:
    """Return seconds of B - A of a stage's wall time that the machine explains."""
    if sides.each(id)[0].kind == Influence.NONE:
        return 0.0
    return sides.mean(id)[0] * math.expm1(sides.shift(Influence.THREAD, id))


def _machine_of_wait(sides: _Sides, stages_s: Mapping[str, float]) -> float:
    """Return seconds of B - A of the wait that the machine explains.

    Batches take longer to make where the CPUs are slower or taken, and a step that takes longer
    hides more.
    """
    waited = sides.mean(_WAIT)[0]
    making = [_making_s(run) for run in sides.runs]
    known = [value for value in making if value is not None]
    if len(known) < len(making):
        return 0.0
    count = len(sides.before)
    cpu_s, queued_s = (sum(parts) / count for parts in zip(*known[:count]))
    most_s = sum(queue for _, queue in known[count:]) / (len(known) - count)
    per_cpu_s = sides.from_load(
        [queue / cpu for cpu, queue in known]
    )  # so that waiting which only follows from more CPU work is not load
    longer_s = min(cpu_s * per_cpu_s, most_s) + (cpu_s + queued_s) * math.expm1(
        sides.shift("cpu", _TOTAL)
    )
    rest_s = sum(
        seconds for id, seconds in stages_s.items() if id.partition("/")[2] not in INPUT_STAGES
    )
    return max(longer_s - rest_s, -waited)


def _making_s(run: MeasuredRun) -> tuple[float, float] | None:
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
    per = (
        1.0 if step is None or not step.mean_s else run.measures[_STEP].value / step.mean_s
    )  # 1 over the batch where times are per sample
    return tuple(part * batch / workers.processes * per for part in (total.cpu_s, total.runqueue_s))  # type: ignore[return-value]


def _judged(sides: _Sides, effects: Mapping[str, _Effect], min_change: float) -> list[Quantity]:
    """Return all quantities with their outcome."""
    corrected = _corrected(effects)
    judged = []
    ids = dict.fromkeys(id for run in sides.runs for id in run.measures)
    for id in ids:
        quantity = _untested(sides, id)
        if (effect := effects.get(id)) is not None:
            low, high = effect.interval
            before = None if quantity.before is None else effect.before
            after = None if quantity.after is None else effect.after
            quantity = replace(
                quantity,
                before=before,
                after=after,
                ratio=effect.ratio,
                low=low,
                high=high,
                machine=effect.machine,
            )
            quantity = replace(quantity, p=corrected.get(id))
            quantity = replace(quantity, outcome=_outcome(sides, effects, quantity, min_change))
        judged.append(quantity)
    judged.sort(key=_place)
    return _without_parts_of_nothing(judged)


def _place(quantity: Quantity) -> tuple[int, float]:
    """Return the order of a report: by group; functions that moved most first."""
    moved_s = abs((quantity.after or 0.0) - (quantity.before or 0.0))
    group = _REPORT_ORDER.index(quantity.group)
    return group, -moved_s if quantity.group in OF_CODE else 0.0


def _corrected(effects: Mapping[str, _Effect]) -> dict[str, float]:
    """Return p values of what can be tested, corrected family by family."""
    corrected: dict[str, float] = {}
    for family in _TEST_FAMILIES:
        ids = [
            id
            for id, effect in effects.items()
            if (id if id in _TOTALS else effect.measure.group) in family
            and math.isfinite(effect.error)
        ]
        corrected |= dict(zip(ids, holm([effects[id].p for id in ids])))
    return corrected


def _untested(sides: _Sides, id: str) -> Quantity:
    """Return a quantity as both sides report it."""
    present = [
        [run.measures[id] for run in side if id in run.measures]
        for side in (sides.before, sides.after)
    ]
    before, after = (
        sum(measure.value for measure in side) / len(side) if side else None for side in present
    )
    kind = (present[0] or present[1])[0]
    return Quantity(
        id,
        kind.group,
        kind.name,
        kind.unit,
        kind.clock,
        before,
        after,
        outcome=Outcome.UNKNOWN if all(present) else Outcome.ONE_SIDE,
    )


def _outcome(
    sides: _Sides, effects: Mapping[str, _Effect], quantity: Quantity, min_change: float
) -> str:
    if quantity.p is None:
        return quantity.outcome
    effect = effects[quantity.id]
    other_work = _has_other_work(effects, effect, min_change)
    counts = _counts(quantity.measured if other_work else effect.ratio, min_change)
    if (
        counts
        and _material(sides, effect)
        and (other_work or quantity.p < _SIGNIFICANCE or _explains_total(effects, effect))
    ):
        return (
            Outcome.MACHINE
            if quantity.group == "gauge" and not quantity.name.startswith(_OF_PROGRAM)
            else Outcome.CHANGED
        )
    explained = (
        _counts(effect.machine, min_change)
        and _counts(quantity.measured, min_change)
        and effect.p_measured < _SIGNIFICANCE
    )
    return Outcome.MACHINE if explained else Outcome.SAME


def _counts(ratio: float | None, min_change: float) -> bool:
    """Tell whether a ratio is far enough from 1; None: it was zero in A."""
    return ratio is None or ratio >= 1 + min_change or ratio <= 1 / (1 + min_change)


def _material(sides: _Sides, effect: _Effect) -> bool:
    """Tell whether the change is a part of the step, or of a sample, that matters."""
    whole = {
        "stage": _STEP,
        "cpu": _STEP,
        "wait": _STEP,
        "collective": _STEP,
        "sample": _TOTAL,
        "blocked": _TOTAL,
        code_shares.OF_SAMPLE: _TOTAL,
        code_shares.OF_STEP: _STEP,
    }.get(effect.measure.group)
    if whole is None or any(whole not in run.measures for run in sides.runs):
        return True
    if (
        effect.measure.group in ("sample", code_shares.OF_SAMPLE)
        and abs(effect.change) * _samples_at_once(sides) < _MATERIAL * sides.mean(_STEP)[0]
    ):
        return False
    return abs(effect.change) >= _MATERIAL * sides.mean(whole)[0]


def _samples_at_once(sides: _Sides) -> float:
    """Return the samples that one worker makes for a step, the most of all runs.

    It is infinite where that is unknown.
    """
    known = []
    for run in sides.runs:
        workers, step, batch = run.report.workers, run.report.step, run.batch
        of_step = (
            run.measures[_STEP].value if _STEP in run.measures else 0.0
        )  # of a sample, where times are per sample
        per = of_step / step.mean_s if step is not None and step.mean_s else 1.0
        known.append(
            batch * per / max(workers.processes, 1) if workers is not None and batch else math.inf
        )
    return max(known)


def _explains_total(effects: Mapping[str, _Effect], part: _Effect) -> bool:
    """Tell whether a part of a sample accounts for most of what the whole sample changed by.

    The whole is known better than each part: every batch is timed, but only some samples in detail.
    """
    whole = effects.get(_TOTAL)
    if (
        whole is None
        or part.measure.group != "sample"
        or part is whole
        or not math.isfinite(whole.error)
    ):
        return False
    return (
        whole.p < _SIGNIFICANCE
        and part.p < _SIGNIFICANCE
        and whole.change != 0
        and part.change / whole.change > 0.5
    )


def _has_other_work(effects: Mapping[str, _Effect], part: _Effect, min_change: float) -> bool:
    """Tell whether what a stage of a sample has to do changed as its time did.

    Work is counted, not timed: no machine changes it, so what the other stages say of the machine
    need not be taken off.
    """
    work = effects.get(_WORK_OF.get(part.measure.id, ""))
    if work is None or work.p >= _SIGNIFICANCE or not _counts(work.ratio, min_change):
        return False
    return part.change * work.change > 0


def _without_parts_of_nothing(quantities: list[Quantity]) -> list[Quantity]:
    """Return the reasons for waiting and the median change only where the wait and the step do."""
    outcomes = {quantity.id: quantity.outcome for quantity in quantities}
    wholes = {"wait": outcomes.get(_WAIT, Outcome.SAME), "step": outcomes.get(_STEP, Outcome.SAME)}

    def capped(quantity: Quantity) -> Quantity:
        whole = wholes.get(quantity.group)
        apart = (
            quantity.id in (_STEP, "step/p95", _CPU_OF_STEP)
            or quantity.outcome != Outcome.CHANGED
            or whole in (None, Outcome.CHANGED)
        )
        return quantity if apart else replace(quantity, outcome=str(whole))

    return [capped(quantity) for quantity in quantities]


def _with_own_changes(sides: _Sides, quantities: list[Quantity]) -> list[Quantity]:
    """Mark what both the machine and the program may explain.

    That is what the machine could explain alone although the program changed in the same direction,
    and what only the waiting for CPUs that is not measured could explain.
    """
    own = [
        quantity
        for quantity in quantities
        if quantity.outcome == Outcome.CHANGED
        and (quantity.group in _PROGRAM_GROUPS or quantity.id == _CPU_OF_STEP)
    ]
    runs = sides.before, sides.after
    other = not same_processes(sides.runs) or bool(context.different_work(*runs))
    versions = any(
        item.kind == "version"
        for item in context.shared_differences(context.differing_settings(*runs))
    )
    moved = sides.speed.known() and abs(sides.shift("cpu")) >= math.log1p(_MATERIAL)
    queued = sides.queued if math.isfinite(sides.more) else 0.0
    step = next((quantity for quantity in quantities if quantity.id == _STEP), None)

    def by_program(quantity: Quantity) -> bool:
        """Tell whether the program's own work changed in the direction of a time.

        The processes that do it count as well.
        """
        return (other and quantity.id in (_WAIT, _STEP)) or any(
            part.grew == quantity.grew and _is_part(part, quantity) for part in own
        )

    def by_load(quantity: Quantity) -> bool:
        """Tell whether load may have done more to it than is known.

        Waiting for a CPU is measured in some stages only.
        """
        moved_so = queued > _MATERIAL if quantity.grew else queued < -_MATERIAL
        of_step = quantity.clock == "wall" and quantity.group in OF_STEP
        left_s = abs((quantity.after or 0.0) - (quantity.before or 0.0) * quantity.machine)
        return of_step and moved_so and left_s <= _MAX_LOAD_SHARE * sides.mean(_STEP)[0]

    def judged(quantity: Quantity) -> Quantity:
        explained = quantity.outcome == Outcome.MACHINE and (
            other or (moved and versions) or by_program(quantity)
        )
        with_step = step is not None and (step.outcome, step.grew) == (
            Outcome.MACHINE,
            quantity.grew,
        )
        loaded = by_load(quantity) or quantity.id == _WAIT and with_step
        unsure = quantity.outcome == Outcome.CHANGED and loaded and not by_program(quantity)
        return replace(quantity, outcome=Outcome.EITHER) if explained or unsure else quantity

    return [quantity if quantity.group == "gauge" else judged(quantity) for quantity in quantities]


def _is_part(part: Quantity, whole: Quantity) -> bool:
    """Tell whether a quantity of its own can change a time of the step."""
    inside = (
        whole.id == _WAIT and part.group != "cpu" or whole.id == _TOTAL and part.group == "sample"
    )
    of_main = (
        part.id == _CPU_OF_STEP and whole.name not in CPU_TIMED_STAGES
    )  # in forward and backward its CPU time was measured apart
    return whole.group == "step" or part.name == whole.name or inside or of_main


def _machine_of(sides: _Sides) -> MachineChange:
    """Return what the machine did to both sides."""

    def mean(values: Sequence[float | None]) -> float | None:
        known = [value for value in values if value is not None]
        return sum(known) / len(known) if known and len(known) == len(values) else None

    def others(side: Sequence[MeasuredRun]) -> float | None:
        return mean(
            [run.report.cpus.others if run.report.cpus is not None else None for run in side]
        )

    def allowed(side: Sequence[MeasuredRun]) -> float | None:
        return mean(
            [run.report.cpus.allowed if run.report.cpus is not None else None for run in side]
        )

    return MachineChange(
        speed=math.exp(sides.shift("cpu")) if sides.speed.known() else None,
        waiting_before=mean([run.waiting for run in sides.before]),
        waiting_after=mean([run.waiting for run in sides.after]),
        others_before=others(sides.before),
        others_after=others(sides.after),
        cpus_before=allowed(sides.before),
        cpus_after=allowed(sides.after),
    )
