"""A budget: what a training must hold, and whether a run does. docs/jobs/ci.md has its keys."""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from feedline.analysis.diff import context
from feedline.analysis.diff.conclusion import MIN_MACHINE_SHARE, MIN_RATIO
from feedline.analysis.diff.run_diff import Outcome, Quantity, RunDiff
from feedline.analysis.diff.side import ComparedRun, Measure
from feedline.analysis.ledger.finding import SHARE, Finding, Severity, advice
from feedline.analysis.measure.noise import half_width, interval_of_rate
from feedline.analysis.measure.stages import INPUT_STAGES, MAKING_STAGES, STEP_STAGES
from feedline.analysis.rules import BY_ID
from feedline.analysis.text.formatting import NOT_MEASURED, share, value

MIN_STEPS = 16
#: Half an interval over the step or the sample: a change that small would not have been seen, so
#: that "no change" says nothing.
_RESOLUTION = 0.25
#: A figure that is beyond its limit by no more than this share, and within the noise of the run,
#: passes; beyond it, it is unknown.
_SLACK = 0.05
_SEVERITY_ORDER = list(Severity)
#: Stages that a step may lack -> the hook that sees them. Without a forward or backward pass, what
#: was recorded is not known to be a step.
_OPTIONAL = {
    "compile": "torch.compile",
    "checkpoint": "torch.save",
    "gradients": "gradients",
    "copy": "Tensor.to",
    "pin": "pin_memory",
}
_SHARES = "stage_share."  # begins the names of shares of the step
_LIMIT_GROUPS = {"step": ("step/mean",), "stage": ("stage", "cpu"), "sample_cpu": ("sample",)}


class LimitOutcome:
    """What came of a limit, beside ``Outcome.UNKNOWN``."""

    PASSED = "passed"
    EXCEEDED = "exceeded"


@dataclass(frozen=True)
class Budget:
    """Limits, as the file has them.

    Attributes:
        at_least, at_most: name of a figure -> its limit. Figures of stages are ``stage_s.forward``,
            ``sample_cpu_s.decode``, ...
        severity: no finding of this severity or a higher one; "": any may be there.
        rules: findings that must not be there.
        than_base: ``step``, ``stage`` or ``sample_cpu`` -> by which share it may be more than in
            the base.
        base: run folders of the base.
        min_steps: a run with fewer steps cannot be judged.
    """

    at_least: Mapping[str, float] = field(default_factory=dict)
    at_most: Mapping[str, float] = field(default_factory=dict)
    severity: str = ""
    rules: tuple[str, ...] = ()
    than_base: Mapping[str, float] = field(default_factory=dict)
    base: tuple[str, ...] = ()
    min_steps: int = MIN_STEPS


@dataclass(frozen=True)
class CheckedLimit:
    """One limit and whether the run holds it.

    Attributes:
        id: of the limit, as ``at_most.step_mean_s``.
        outcome: ``passed``, ``exceeded`` or ``unknown``.
        message: one sentence.
        value, limit: in the unit of the key; None where the quantity is missing or the limit is not
            a number.
        about: ``input`` where it is about the loader, whose line in the script is known.
        place: file and line to change, ``train.py:31``; empty: none is known.
    """

    id: str
    outcome: str
    message: str
    value: float | None = None
    limit: float | None = None
    about: str = ""
    place: str = ""


@dataclass(frozen=True)
class Figure:
    """A figure of a run that a budget may limit.

    Attributes:
        low, high: 95 % interval; None: not known, then the value alone decides. ``high`` is
            infinite where the noise leaves no upper end.
    """

    value: float
    low: float | None
    high: float | None
    unit: str
    about: str = ""

    def text(self, x: float) -> str:
        """Return a value in its unit."""
        return value(x, self.unit)

    def interval_text(self) -> str:
        """Return the interval in brackets, behind a space; "" where it is not known."""
        if self.low is None or self.high is None:
            return ""
        end = f"to {self.text(self.high)}" if math.isfinite(self.high) else "or more"
        return f" (95 % interval {self.text(self.low)} {end})"


def check_budget(
    budget: Budget, run: ComparedRun, base: Sequence[ComparedRun], diffs: Mapping[str, RunDiff]
) -> list[CheckedLimit]:
    """Check every limit of the budget.

    Args:
        budget: the limits.
        run: the run that is held against them.
        base: the runs that the budget names.
        diffs: ``step``, ``stage`` or ``sample_cpu`` -> the comparison of the base with the run
            whose smallest change is that limit.
    """
    limits = _limits(budget, run)
    findings = _findings(budget, run)
    than_base = _against_base(budget, run, base, diffs)
    if why := why_unjudged(budget, run):
        return [_unknown(finding, why) for finding in (*limits, *findings, *than_base)]
    if lost := why_lost(run):
        return [
            *(_unknown(checked_limit, lost) for checked_limit in limits),
            *findings,
            *(_unknown(checked_limit, lost) for checked_limit in than_base),
        ]
    return [*limits, *findings, *than_base]


def _unknown(checked: CheckedLimit, why: str) -> CheckedLimit:
    return CheckedLimit(checked.id, Outcome.UNKNOWN, why, None, checked.limit, checked.about)


def why_lost(run: ComparedRun) -> str:
    """Say why the times of a training say nothing of one that works; "": they do."""
    lost = context.how_diverged(run)
    return f"the training diverged: {lost}" if lost else ""


def why_unjudged(budget: Budget, run: ComparedRun) -> str:
    """Say why nothing can be said of a run; "": it can be judged."""
    report, steps = run.report, run.report.throughput.steps
    if report.run.state in ("cut", "live"):
        return (
            "the run was killed" if report.run.state == "cut" else "the run is still being recorded"
        )
    if report.headline:
        return report.headline.rstrip(".")
    if run.unread:
        return f"rank{'s' * (len(run.unread) > 1)} {', '.join(map(str, run.unread))} cannot be read"
    if steps < budget.min_steps:
        return f"too short to judge: only {steps} of the required {budget.min_steps} steps"
    return ""


def _limits(budget: Budget, run: ComparedRun) -> Iterator[CheckedLimit]:
    figures = dict(figures_of(run))
    for section, limits, sign in (
        ("at_least", budget.at_least, -1),
        ("at_most", budget.at_most, 1),
    ):
        for name, limit in limits.items():
            yield _limited(
                f"{section}.{name}", name, figures, limit, sign, _takes_no_time(name, run)
            )


def _limited(
    id: str, name: str, figures: Mapping[str, Figure], limit: float, sign: int, absent: bool
) -> CheckedLimit:
    """Return a figure against its limit.

    It is exceeded only if its whole interval is beyond, so that noise does not fail a gate.
    """
    nothing = Figure(0.0, None, None, SHARE if name.startswith(_SHARES) else "s")
    figure = figures.get(name, nothing if absent else None)
    if figure is None:
        group = name.partition(".")[0] + "."
        others = (
            ", ".join(figure.removeprefix(group) for figure in figures if figure.startswith(group))
            if "." in name
            else ""
        )
        return CheckedLimit(
            id,
            Outcome.UNKNOWN,
            f"not measured in this run{f' (measured: {others})' if others else ''}",
            None,
            limit,
        )
    if not math.isfinite(figure.value):
        return CheckedLimit(id, Outcome.UNKNOWN, NOT_MEASURED, None, limit, figure.about)
    shown = figure.text(figure.value)
    bound = f"{'at most' if sign > 0 else 'at least'} {figure.text(limit)}"
    if sign * figure.value <= sign * limit:
        return CheckedLimit(
            id, LimitOutcome.PASSED, f"{shown}, {bound}", figure.value, limit, figure.about
        )
    near = figure.low if sign > 0 else figure.high
    beyond = abs(figure.value - limit) / limit if limit else math.inf
    interval = figure.interval_text()
    if near is not None and sign * near <= sign * limit:
        outcome, message = (
            (LimitOutcome.PASSED, "")
            if beyond <= _SLACK
            else (Outcome.UNKNOWN, "too noisy to judge, ")
        )
        within = f"{message}beyond the limit but within the noise{interval}"
        return CheckedLimit(
            id, outcome, f"{shown}, {bound}: {within}", figure.value, limit, figure.about
        )
    return CheckedLimit(
        id, LimitOutcome.EXCEEDED, f"{shown}, {bound}{interval}", figure.value, limit, figure.about
    )


def _takes_no_time(name: str, run: ComparedRun) -> bool:
    """Tell whether a figure is of a stage that would have been seen, but did not occur."""
    group, _, stage = name.partition(".")
    report = run.report
    if (
        report.step is None
        or report.traces is not None
        or not group.startswith("stage_")
        or stage not in STEP_STAGES
    ):
        return False
    if stage not in INPUT_STAGES:
        return any(hook.attached and hook.name == _OPTIONAL.get(stage) for hook in report.hooks)
    beside_step = report.workers is not None and report.workers.processes > 0
    return report.step.input_share is not None and (beside_step or stage not in MAKING_STAGES)


def figures_of(run: ComparedRun) -> Iterator[tuple[str, Figure]]:
    """Return the name -> figure."""
    report, step = run.report, run.report.step
    for name, id in (
        ("step_mean_s", "step/mean"),
        ("step_median_s", "step/median"),
        ("step_p95_s", "step/p95"),
    ):
        if id in run.measures:
            yield name, _figure(run, id)
    if step is None or not step.mean_s > 0 or "step/mean" not in run.measures:
        return
    half = half_width(run.measures["step/mean"].error, run.measures["step/mean"].drift)
    for name, rate in (
        ("samples_per_s", report.throughput.of_all_ranks),
        ("steps_per_s", report.throughput.steps_per_s),
    ):
        if rate:
            low, high = interval_of_rate(rate, half)
            most = math.inf if low is not None and high is None else high
            yield name, Figure(rate, low, most, name.replace("_per_s", "/s"))
    if step.input_share is not None:
        yield (
            "input_share",
            Figure(step.input_share, step.input_share_low, step.input_share_high, SHARE, "input"),
        )
    if step.cpu_s is not None:
        yield "step_cpu_s", Figure(step.cpu_s, None, None, "s")
    for id, measure in run.measures.items():
        if measure.group == "stage":
            figure = _figure(run, id)
            yield f"stage_s.{measure.name}", figure
            parts = [
                None if bound is None else bound / step.mean_s
                for bound in (figure.value, figure.low, figure.high)
            ]
            yield f"{_SHARES}{measure.name}", Figure(parts[0] or 0.0, parts[1], parts[2], SHARE)
        if measure.group == "sample":
            yield f"sample_cpu_s.{measure.name}", _figure(run, id, "input")


def _figure(run: ComparedRun, id: str, about: str = "") -> Figure:
    measure = run.measures[id]
    return Figure(measure.value, *_interval_of(measure), measure.unit, about)


def _interval_of(measure: Measure) -> tuple[float | None, float | None]:
    """Return the 95 % interval of a quantity of one run; None: not known.

    It holds what the values scatter by, and what the machine did to the run meanwhile.
    """
    half = half_width(measure.error, measure.drift)
    return (
        (max(0.0, measure.value * (1 - half)), measure.value * (1 + half))
        if math.isfinite(half)
        else (None, None)
    )


def _findings(budget: Budget, run: ComparedRun) -> Iterator[CheckedLimit]:
    report = run.report
    checks = report.convergence.checks if report.convergence else []
    reported = {finding.rule_id for finding in report.findings}
    all_of = [*report.findings, *(finding for finding in checks if finding.rule_id not in reported)]
    if budget.severity:
        worse = [
            finding
            for finding in report.findings
            if _SEVERITY_ORDER.index(finding.severity)
            >= _SEVERITY_ORDER.index(Severity(budget.severity))
        ]
        yield _finding(
            f"findings.none_of_severity={budget.severity}",
            worse,
            context.why_severity_unjudged(run, budget.severity),
        )
    for rule_id in budget.rules:
        there = [finding for finding in all_of if finding.rule_id == rule_id]
        yield _finding(
            f"findings.none_of={rule_id}", there, context.why_rule_unjudged(run, rule_id)
        )


def _finding(id: str, there: list[Finding], unknown: str) -> CheckedLimit:
    """Check a limit on findings.

    Args:
        id: of the limit.
        there: findings that break it.
        unknown: why the finding may be true although the report lacks it; "": it is not true.
    """
    if there:
        message = "; ".join(
            f"{finding.rule_id}: {finding.message}{f'. Fix: {advice(finding)}' if finding.fix else ''}"
            for finding in there
        )
        first = next((finding for finding in there if finding.place), there[0])
        rule = BY_ID.get(first.rule_id)
        about = "input" if rule is not None and rule.of_input else ""
        return CheckedLimit(id, LimitOutcome.EXCEEDED, message, about=about, place=first.place)
    return (
        CheckedLimit(id, Outcome.UNKNOWN, unknown)
        if unknown
        else CheckedLimit(id, LimitOutcome.PASSED, "no such finding")
    )


def _against_base(
    budget: Budget, run: ComparedRun, base: Sequence[ComparedRun], diffs: Mapping[str, RunDiff]
) -> Iterator[CheckedLimit]:
    for name, limit in budget.than_base.items():
        id, about, diff = f"than_base.{name}", "input" if name == "sample_cpu" else "", diffs[name]
        if why := _incomparable(budget, run, base, name):
            yield CheckedLimit(id, Outcome.UNKNOWN, why, None, limit, about)
        else:
            chosen = [
                quantity
                for quantity in diff.quantities
                if quantity.id in _LIMIT_GROUPS[name] or quantity.group in _LIMIT_GROUPS[name]
            ]
            yield _than_base(id, diff, chosen, limit, about)


def _incomparable(budget: Budget, run: ComparedRun, base: Sequence[ComparedRun], name: str) -> str:
    """Say why a run cannot be compared with its base; "": it can.

    CPU time of a sample is known of other models and machines, too.
    """
    if damaged := [
        f"its base {run.report.run.name}: {why}"
        for run in base
        if (why := why_unjudged(budget, run) or why_lost(run))
    ]:
        return "; ".join(damaged)
    differs = (
        []
        if name == "sample_cpu"
        else [*context.different_work(base, [run]), *context.different_machine(base, [run])]
    )
    return (
        f"not comparable with its base ({'; '.join(differs)}): record a base like this run"
        if differs
        else ""
    )


def _than_base(
    id: str, diff: RunDiff, quantities: list[Quantity], limit: float, about: str
) -> CheckedLimit:
    """Check a limit against the base.

    It is exceeded where a quantity grew by more than the limit, the noise, and what the machine
    explains.
    """
    grown = [
        quantity
        for quantity in quantities
        if quantity.outcome == Outcome.CHANGED and (quantity.ratio is None or quantity.ratio > 1)
    ]
    if grown:
        most = max(grown, key=lambda item: (item.after or 0.0) - (item.before or 0.0))
        more = None if most.ratio is None else most.ratio - 1
        message = f"{_growths(grown)}, at most {1 + limit:g}x: {diff.conclusion}"
        return CheckedLimit(id, LimitOutcome.EXCEEDED, message, more, limit, about)
    outcome, message = _without_growth(diff, quantities, limit, about)
    return CheckedLimit(id, outcome, message, None, limit, about)


def _without_growth(
    diff: RunDiff, quantities: list[Quantity], limit: float, about: str
) -> tuple[str, str]:
    """Return the outcome and the message of a limit if no quantity grew for certain."""
    if shared := _grew(quantities, Outcome.EITHER):
        why = "how much of that other programs or slower CPUs explain is unknown"
        return Outcome.UNKNOWN, f"{_growths(shared)}: {why}"
    whole_id, of = ("sample/total", "sample") if about == "input" else ("step/mean", "step")
    whole = diff.of(whole_id)
    if whole is None or whole.outcome == Outcome.ONE_SIDE:
        return Outcome.UNKNOWN, "not measured in the run or in its base"
    if whole.p is None or not whole.before or not whole.after:
        why = f"too little was recorded to know how much {of}s vary: record more steps"
        return Outcome.UNKNOWN, why
    seen = max(_resolution(quantity, whole) for quantity in quantities)
    unseen_of = f"less than {share(seen)} of the {of} would not have been seen"
    if seen > _RESOLUTION:
        way = "record more steps, or on a less busy machine"
        return Outcome.UNKNOWN, f"too noisy to judge: changes of {unseen_of}; {way}"
    if explained := _grew(quantities, Outcome.MACHINE):
        why = "which other programs or slower CPUs explain"
        return LimitOutcome.PASSED, f"{_growths(explained)}, {why}"
    why = f"no increase beyond noise and {share(limit)}; increases of {unseen_of}"
    return LimitOutcome.PASSED, why


def _grew(quantities: list[Quantity], outcome: str) -> list[Quantity]:
    return [quantity for quantity in quantities if quantity.outcome == outcome and quantity.grew]


def _growths(quantities: list[Quantity]) -> str:
    return ", ".join(map(_growth, quantities))


def _growth(quantity: Quantity) -> str:
    """Return ``forward 1.32x``, as measured.

    What is left of it follows where the machine explains a part.
    """
    if quantity.ratio is None or quantity.measured is None:
        return f"{quantity.name} is new"
    apart = (
        quantity.outcome == Outcome.CHANGED
        and abs(quantity.measured / max(quantity.ratio, MIN_RATIO) - 1) >= MIN_MACHINE_SHARE
    )
    left = f" ({quantity.ratio:.2f}x without what the machine explains)" if apart else ""
    return f"{quantity.name} {quantity.measured:.2f}x{left}"


def _resolution(quantity: Quantity, whole: Quantity) -> float:
    """Return the smallest change that would have been seen, as a share of the step or a sample.

    Untested quantities count in full.
    """
    assert whole.before and whole.after
    if quantity.low is None or quantity.high is None:
        return (quantity.after or 0.0) / whole.after
    return (quantity.high - quantity.low) / 2 * (quantity.before or 0.0) / whole.before


def count_unmet(checked: list[CheckedLimit]) -> tuple[int, int]:
    """Count the limits that are exceeded, and those that could not be judged."""
    return sum(checked_limit.outcome == LimitOutcome.EXCEEDED for checked_limit in checked), sum(
        checked_limit.outcome == Outcome.UNKNOWN for checked_limit in checked
    )
