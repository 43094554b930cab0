"""A budget: what a training must hold, and whether a run does. docs/jobs/ci.md has its keys."""

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from feedline.analysis.diff.measure import interval_of
from feedline.analysis.diff.model import CHANGED, UNKNOWN, Diff, Quantity
from feedline.analysis.diff.side import Measured
from feedline.analysis.finding import SHARE, Finding, Severity
from feedline.analysis.formatting import share, value
from feedline.analysis.stages import INPUT_STAGES, STEP_STAGES

PASSED, EXCEEDED = "passed", "exceeded"
MIN_STEPS = 16
#: Half an interval over the step or the sample: a change that small would not have been seen, so that "no change" says nothing.
RESOLUTION = 0.25
#: A figure that is beyond its limit by no more than this share, and within the noise of the run, passes; beyond it, it is unknown.
SLACK = 0.05
ORDER = list(Severity)


@dataclass(frozen=True)
class Budget:
    """Limits, as the file has them.

    Attributes:
        at_least, at_most: name of a figure -> its limit. Figures of stages are ``stage_s.forward``, ``sample_cpu_s.decode``, ...
        severity: no finding of this severity or a higher one; "": any may be there.
        rules: findings that must not be there.
        than_base: ``step``, ``stage`` or ``sample_cpu`` -> by which share it may be more than in the base.
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
class Checked:
    """One limit and whether the run holds it.

    Attributes:
        id: of the limit, as ``at_most.step_mean_s``.
        outcome: ``passed``, ``exceeded`` or ``unknown``.
        message: one sentence.
        value, limit: in the unit of the key; None where the quantity is missing or the limit is not a number.
        about: ``input`` where it is about the loader, whose line in the script is known.
    """

    id: str
    outcome: str
    message: str
    value: float | None = None
    limit: float | None = None
    about: str = ""


@dataclass(frozen=True)
class Figure:
    """A figure of a run that a budget may limit.

    Attributes:
        low, high: 95 % interval; None: not known, then the value alone decides.
    """

    value: float
    low: float | None
    high: float | None
    unit: str
    about: str = ""

    def text(self, x: float) -> str:
        """A value in its unit."""
        return value(x, self.unit)


NO_TIME = Figure(0.0, None, None, "s")


def check(budget: Budget, run: Measured, diffs: Mapping[str, Diff]) -> list[Checked]:
    """Every limit of the budget.

    Args:
        diffs: ``step``, ``stage`` or ``sample_cpu`` -> the comparison of the base with the run whose smallest change is that limit.
    """
    why = unjudged(budget, run)
    found = [*_limits(budget, run), *_findings(budget, run), *_against_base(budget, diffs)]
    return [Checked(one.id, UNKNOWN, why, None, one.limit, one.about) for one in found] if why else found


def unjudged(budget: Budget, run: Measured) -> str:
    """Why nothing can be said of a run; "": it can be judged."""
    report, steps = run.report, run.report.throughput.steps
    if report.run.state in ("cut", "live"):
        return "the run was killed" if report.run.state == "cut" else "the run is still being recorded"
    if report.headline:
        return report.headline.rstrip(".")
    if steps < budget.min_steps:
        return f"too short to judge: only {steps} of the required {budget.min_steps} steps"
    return ""


def _limits(budget: Budget, run: Measured) -> Iterator[Checked]:
    figures = dict(figures_of(run))
    for section, limits, sign in (("at_least", budget.at_least, -1), ("at_most", budget.at_most, 1)):
        for name, limit in limits.items():
            yield _limited(f"{section}.{name}", name, figures, limit, sign, takes_no_time(name, run))


def _limited(id: str, name: str, figures: Mapping[str, Figure], limit: float, sign: int, absent: bool) -> Checked:
    """A figure against its limit: exceeded only if its whole interval is beyond, so that noise does not fail a gate."""
    figure = figures.get(name, NO_TIME if absent else None)
    if figure is None:
        group = name.partition(".")[0] + "."
        others = ", ".join(one.removeprefix(group) for one in figures if one.startswith(group)) if "." in name else ""
        return Checked(id, UNKNOWN, f"not measured in this run{f' (measured: {others})' if others else ''}", None, limit)
    shown, bound = figure.text(figure.value), f"{'at most' if sign > 0 else 'at least'} {figure.text(limit)}"
    if sign * figure.value <= sign * limit:
        return Checked(id, PASSED, f"{shown}, {bound}", figure.value, limit, figure.about)
    near, beyond = figure.low if sign > 0 else figure.high, abs(figure.value - limit) / limit if limit else math.inf
    interval = (
        "" if figure.low is None or figure.high is None else f" (95 % interval {figure.text(figure.low)} to {figure.text(figure.high)})"
    )
    if near is not None and sign * near <= sign * limit:
        outcome, said = (PASSED, "") if beyond <= SLACK else (UNKNOWN, "too noisy to judge, ")
        within = f"{said}beyond the limit but within the noise{interval}"
        return Checked(id, outcome, f"{shown}, {bound}: {within}", figure.value, limit, figure.about)
    return Checked(id, EXCEEDED, f"{shown}, {bound}{interval}", figure.value, limit, figure.about)


def takes_no_time(name: str, run: Measured) -> bool:
    """Whether a figure is of a stage that would have been seen, but did not occur."""
    group, _, stage = name.partition(".")
    step = run.report.step
    if step is None or not group.startswith("stage_") or stage not in STEP_STAGES:
        return False
    return stage not in INPUT_STAGES or step.input_share is not None


def figures_of(run: Measured) -> Iterator[tuple[str, Figure]]:
    """Name -> figure."""
    report, step = run.report, run.report.step
    for name, id in (("step_mean_s", "step/mean"), ("step_median_s", "step/median"), ("step_p95_s", "step/p95")):
        if id in run.measures:
            yield name, _figure(run, id)
    if step is None:
        return
    low, high = interval_of(run.measures["step/mean"])
    for name, rate in (("samples_per_s", report.throughput.of_all_ranks), ("steps_per_s", report.throughput.steps_per_s)):
        if rate:
            slowest, fastest = (rate * step.mean_s / end if end else None for end in (high, low))
            yield name, Figure(rate, slowest, fastest, name.replace("_per_s", "/s"))
    if step.input_share is not None:
        yield "input_share", Figure(step.input_share, step.input_share_low, step.input_share_high, SHARE, "input")
    if step.cpu_s is not None:
        yield "step_cpu_s", Figure(step.cpu_s, None, None, "s")
    for id, measure in run.measures.items():
        if measure.group == "stage":
            figure = _figure(run, id)
            yield f"stage_s.{measure.name}", figure
            parts = [None if one is None else one / step.mean_s for one in (figure.value, figure.low, figure.high)]
            yield f"stage_share.{measure.name}", Figure(parts[0] or 0.0, parts[1], parts[2], SHARE)
        if measure.group == "sample":
            yield f"sample_cpu_s.{measure.name}", _figure(run, id, "input")


def _figure(run: Measured, id: str, about: str = "") -> Figure:
    measure = run.measures[id]
    return Figure(measure.value, *interval_of(measure), measure.unit, about)


def _findings(budget: Budget, run: Measured) -> Iterator[Checked]:
    findings = run.report.findings
    unknown = next((one for one in findings if one.rule_id in ("too_short", "nothing_trained")), None)
    if budget.severity:
        worse = [one for one in findings if ORDER.index(one.severity) >= ORDER.index(Severity(budget.severity))]
        yield _finding(f"findings.none_of_severity={budget.severity}", worse, unknown)
    for rule_id in budget.rules:
        yield _finding(f"findings.none_of={rule_id}", [one for one in findings if one.rule_id == rule_id], unknown)


def _finding(id: str, there: list[Finding], unknown: Finding | None) -> Checked:
    if there:
        said = "; ".join(f"{one.rule_id}: {one.message}{f'. Fix: {one.fix}' if one.fix else ''}" for one in there)
        return Checked(id, EXCEEDED, said, about="input")
    return Checked(id, UNKNOWN, unknown.message) if unknown is not None else Checked(id, PASSED, "no such finding")


def _against_base(budget: Budget, diffs: Mapping[str, Diff]) -> Iterator[Checked]:
    groups = {"step": ("step/mean",), "stage": ("stage", "cpu"), "sample_cpu": ("sample",)}
    for name, limit in budget.than_base.items():
        diff = diffs[name]
        chosen = [one for one in diff.quantities if one.id in groups[name] or one.group in groups[name]]
        yield _than_base(f"than_base.{name}", diff, chosen, limit, "input" if name == "sample_cpu" else "")


def _than_base(id: str, diff: Diff, quantities: list[Quantity], limit: float, about: str) -> Checked:
    """Exceeded where a quantity grew by more than the limit, the noise, and what the machine explains."""
    grown = [one for one in quantities if one.outcome == CHANGED and (one.ratio is None or one.ratio > 1)]
    if grown:
        most = max(grown, key=lambda one: (one.after or 0.0) - (one.before or 0.0))
        ratio = None if most.ratio is None else most.ratio - 1
        said = ", ".join(f"{one.name} {one.ratio:.2f}x" if one.ratio is not None else f"{one.name} is new" for one in grown)
        return Checked(id, EXCEEDED, f"{said}, at most {1 + limit:g}x: {diff.conclusion}", ratio, limit, about)
    if not quantities or all(one.outcome == UNKNOWN for one in quantities):
        return Checked(id, UNKNOWN, "not measured in the run or in its base", None, limit, about)
    if (seen := max(_resolution(diff, one) for one in quantities)) > RESOLUTION:
        apart = f"changes of less than {share(seen)} would not have been seen" if math.isfinite(seen) else "its noise is not known"
        return Checked(id, UNKNOWN, f"too noisy to judge: {apart}; record more steps, or on a less busy machine", None, limit, about)
    return Checked(
        id, PASSED, f"not more than {1 + limit:g}x; changes of less than {share(seen)} would not have been seen", None, limit, about
    )


def _resolution(diff: Diff, quantity: Quantity) -> float:
    """The smallest change that would have been seen, as a share of the step or of a sample."""
    whole = diff.of("sample/total" if quantity.group == "sample" else "step/mean")
    if quantity.outcome == UNKNOWN or whole is None or not whole.before:
        return 0.0
    if quantity.low is None or quantity.high is None:
        return math.inf if quantity is whole else 0.0
    return (quantity.high - quantity.low) / 2 * (quantity.before or 0.0) / whole.before


def unmet(checked: list[Checked]) -> tuple[int, int]:
    """How many limits are exceeded, and how many could not be judged."""
    return sum(one.outcome == EXCEEDED for one in checked), sum(one.outcome == UNKNOWN for one in checked)
