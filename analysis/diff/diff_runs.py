"""Compare two sides: which quantities changed by more than noise, and which of these count."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace

from feedline.analysis.diff import context
from feedline.analysis.diff import side as code_shares
from feedline.analysis.diff.conclusion import cause_of, conclude_diff
from feedline.analysis.diff.effects import (
    CPU_OF_STEP,
    SIGNIFICANCE,
    STEP,
    TOTAL,
    WAIT,
    Effect,
    Sides,
    effects_of,
)
from feedline.analysis.diff.run_diff import MachineChange, Outcome, Quantity, RunDiff
from feedline.analysis.diff.side import (
    CPU_TIMED_STAGES,
    MEASURED,
    OF_CODE,
    OF_STEP,
    ComparedRun,
    same_processes,
    with_code_of_all,
)
from feedline.analysis.measure.noise import holm

_MIN_CHANGE = 0.05
_MATERIAL = 0.02  # of the step, or of a sample: a change that makes less of it does not matter
_WORK_OF = {"sample/decode": "work/decoded_pixels"}  # quantity -> what decides how long it takes
_TOTALS = (STEP, TOTAL)
# of the step: more than that beyond the waiting that was measured is not put down to load
_MAX_LOAD_SHARE = 0.5
#: Groups that other programs hardly change: what changes of them is the program's own.
_PROGRAM_GROUPS = ("cpu", "sample", "blocked", "work")
# gauges of the program; the others are of the machine, which other programs use too
_OF_PROGRAM = ("memory/processes", "gpu")
#: Groups in the order of reports.
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
)
#: Families of tests: groups, or single quantities. Gauges and waits are reported as context, never
#: as a cause.
_TEST_FAMILIES = (
    (STEP,),
    (TOTAL,),
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


def diff(
    before: Sequence[ComparedRun], after: Sequence[ComparedRun], min_change: float = _MIN_CHANGE
) -> RunDiff:
    """Compare runs.

    Args:
        before: one run or more.
        after: one run or more.
        min_change: share by which a quantity has to change to count.
    """
    by_sample = _per_sample(before, after)
    runs = with_code_of_all([*before, *after])
    before, after = runs[: len(before)], runs[len(before) :]
    if by_sample:
        before = [_of_equal_work(run) for run in before]
        after = [_of_equal_work(run) for run in after]
    sides = Sides.of(before, after)
    quantities = _with_own_changes(sides, _judged(sides, effects_of(sides), min_change))
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


def _judged(sides: Sides, effects: Mapping[str, Effect], min_change: float) -> list[Quantity]:
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


def _corrected(effects: Mapping[str, Effect]) -> dict[str, float]:
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


def _untested(sides: Sides, id: str) -> Quantity:
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
    sides: Sides, effects: Mapping[str, Effect], quantity: Quantity, min_change: float
) -> str:
    if quantity.p is None:
        return quantity.outcome
    effect = effects[quantity.id]
    other_work = _has_other_work(effects, effect, min_change)
    counts = _counts(quantity.measured if other_work else effect.ratio, min_change)
    if (
        counts
        and _material(sides, effect)
        and (other_work or quantity.p < SIGNIFICANCE or _explains_total(effects, effect))
    ):
        return (
            Outcome.MACHINE
            if quantity.group == "gauge" and not quantity.name.startswith(_OF_PROGRAM)
            else Outcome.CHANGED
        )
    explained = (
        _counts(effect.machine, min_change)
        and _counts(quantity.measured, min_change)
        and effect.p_measured < SIGNIFICANCE
    )
    return Outcome.MACHINE if explained else Outcome.SAME


def _counts(ratio: float | None, min_change: float) -> bool:
    """Tell whether a ratio is far enough from 1; None: it was zero in A."""
    return ratio is None or ratio >= 1 + min_change or ratio <= 1 / (1 + min_change)


def _material(sides: Sides, effect: Effect) -> bool:
    """Tell whether the change is a part of the step, or of a sample, that matters."""
    whole = {
        "stage": STEP,
        "cpu": STEP,
        "wait": STEP,
        "collective": STEP,
        "sample": TOTAL,
        "blocked": TOTAL,
        code_shares.CODE_OF_SAMPLE: TOTAL,
        code_shares.CODE_OF_STEP: STEP,
    }.get(effect.measure.group)
    if whole is None or any(whole not in run.measures for run in sides.runs):
        return True
    if (
        effect.measure.group in ("sample", "blocked", code_shares.CODE_OF_SAMPLE)
        and abs(effect.change) * _samples_at_once(sides) < _MATERIAL * sides.mean(STEP)[0]
    ):
        return False
    return abs(effect.change) >= _MATERIAL * sides.mean(whole)[0]


def _samples_at_once(sides: Sides) -> float:
    """Return the samples that one worker makes for a step, the most of all runs.

    It is infinite where that is unknown.
    """
    known = []
    for run in sides.runs:
        workers, step, batch = run.report.workers, run.report.step, run.batch
        # of a sample, where times are per sample
        of_step = run.measures[STEP].value if STEP in run.measures else 0.0
        per = of_step / step.mean_s if step is not None and step.mean_s else 1.0
        known.append(
            batch * per / max(workers.processes, 1) if workers is not None and batch else math.inf
        )
    return max(known)


def _explains_total(effects: Mapping[str, Effect], part: Effect) -> bool:
    """Tell whether a part of a sample accounts for most of what the whole sample changed by.

    The whole is known better than each part: every batch is timed, but only some samples in detail.
    """
    whole = effects.get(TOTAL)
    if (
        whole is None
        or part.measure.group != "sample"
        or part is whole
        or not math.isfinite(whole.error)
    ):
        return False
    return (
        whole.p < SIGNIFICANCE
        and part.p < SIGNIFICANCE
        and whole.change != 0
        and part.change / whole.change > 0.5
    )


def _has_other_work(effects: Mapping[str, Effect], part: Effect, min_change: float) -> bool:
    """Tell whether what a stage of a sample has to do changed as its time did.

    Work is counted, not timed: no machine changes it, so what the other stages say of the machine
    need not be taken off.
    """
    work = effects.get(_WORK_OF.get(part.measure.id, ""))
    if work is None or work.p >= SIGNIFICANCE or not _counts(work.ratio, min_change):
        return False
    return part.change * work.change > 0


def _without_parts_of_nothing(quantities: list[Quantity]) -> list[Quantity]:
    """Return the reasons for waiting and the median change only where the wait and the step do."""
    outcomes = {quantity.id: quantity.outcome for quantity in quantities}
    wholes = {"wait": outcomes.get(WAIT, Outcome.SAME), "step": outcomes.get(STEP, Outcome.SAME)}

    def capped(quantity: Quantity) -> Quantity:
        whole = wholes.get(quantity.group)
        apart = (
            quantity.id in (STEP, "step/p95", CPU_OF_STEP)
            or quantity.outcome != Outcome.CHANGED
            or whole in (None, Outcome.CHANGED)
        )
        return quantity if apart else replace(quantity, outcome=str(whole))

    return [capped(quantity) for quantity in quantities]


def _with_own_changes(sides: Sides, quantities: list[Quantity]) -> list[Quantity]:
    """Mark what both the machine and the program may explain.

    That is what the machine could explain alone although the program changed in the same direction,
    and what only the waiting for CPUs that is not measured could explain.
    """
    own = [
        quantity
        for quantity in quantities
        if quantity.outcome == Outcome.CHANGED
        and (quantity.group in _PROGRAM_GROUPS or quantity.id == CPU_OF_STEP)
    ]
    runs = sides.before, sides.after
    other = not same_processes(sides.runs) or bool(context.different_work(*runs))
    versions = any(
        item.kind == "version"
        for item in context.shared_differences(context.differing_settings(*runs))
    )
    moved = sides.speed.known() and abs(sides.shift("cpu")) >= math.log1p(_MATERIAL)
    queued = sides.queued if math.isfinite(sides.more) else 0.0
    step = next((quantity for quantity in quantities if quantity.id == STEP), None)

    def by_program(quantity: Quantity) -> bool:
        """Tell whether the program's own work changed in the direction of a time.

        The processes that do it count as well.
        """
        return (other and quantity.id in (WAIT, STEP)) or any(
            part.grew == quantity.grew and _is_part(part, quantity) for part in own
        )

    def by_load(quantity: Quantity) -> bool:
        """Tell whether load may have done more to it than is known.

        Waiting for a CPU is measured in some stages only.
        """
        moved_so = queued > _MATERIAL if quantity.grew else queued < -_MATERIAL
        of_step = quantity.clock == "wall" and quantity.group in OF_STEP
        left_s = abs((quantity.after or 0.0) - (quantity.before or 0.0) * quantity.machine)
        return of_step and moved_so and left_s <= _MAX_LOAD_SHARE * sides.mean(STEP)[0]

    def judged(quantity: Quantity) -> Quantity:
        explained = quantity.outcome == Outcome.MACHINE and (
            other or (moved and versions) or by_program(quantity)
        )
        with_step = step is not None and (step.outcome, step.grew) == (
            Outcome.MACHINE,
            quantity.grew,
        )
        loaded = by_load(quantity) or quantity.id in (WAIT, "step/p95") and with_step
        unsure = quantity.outcome == Outcome.CHANGED and loaded and not by_program(quantity)
        return replace(quantity, outcome=Outcome.EITHER) if explained or unsure else quantity

    return [quantity if quantity.group == "gauge" else judged(quantity) for quantity in quantities]


def _is_part(part: Quantity, whole: Quantity) -> bool:
    """Tell whether a quantity of its own can change a time of the step."""
    inside = (
        whole.id == WAIT and part.group != "cpu" or whole.id == TOTAL and part.group == "sample"
    )
    # in forward and backward its CPU time was measured apart
    of_main = part.id == CPU_OF_STEP and whole.name not in CPU_TIMED_STAGES
    return whole.group == "step" or part.name == whole.name or inside or of_main


def _machine_of(sides: Sides) -> MachineChange:
    """Return what the machine did to both sides."""

    def mean(values: Sequence[float | None]) -> float | None:
        known = [value for value in values if value is not None]
        return sum(known) / len(known) if known and len(known) == len(values) else None

    def others(side: Sequence[ComparedRun]) -> float | None:
        return mean(
            [run.report.cpus.others if run.report.cpus is not None else None for run in side]
        )

    def allowed(side: Sequence[ComparedRun]) -> float | None:
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


def _per_sample(runs: Sequence[ComparedRun], after: Sequence[ComparedRun]) -> bool:
    """Tell whether the sides have batches of different sizes.

    Their steps are different work then.
    """
    sizes = [run.batch for run in (*runs, *after)]
    known = [size for size in sizes if size]
    return len(known) == len(sizes) and max(known) > 1.01 * min(known)


def _of_equal_work(run: ComparedRun) -> ComparedRun:
    """Divide times of steps by the samples of a step."""
    assert run.batch
    divided = {
        id: measure.divided(run.batch) if measure.group in OF_STEP else measure
        for id, measure in run.measures.items()
    }
    return replace(run, measures=divided)
