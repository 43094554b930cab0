"""What a finding's fix gives, as one number with its kind: decided here and nowhere else."""

import math
from collections.abc import Sequence
from dataclasses import replace

from feedline.analysis.ledger.finding import (
    CostKind,
    Finding,
    Gain,
    GainKind,
    Severity,
    predicted_gain,
)
from feedline.analysis.ledger.rule import Effort
from feedline.analysis.measure.model import Throughput
from feedline.analysis.measure.step_model import StepSummary
from feedline.analysis.rules import BY_ID

_KINDS = {
    CostKind.PREDICTED: GainKind.PREDICTED,
    CostKind.BOUND: GainKind.AT_MOST,
    CostKind.ESTIMATED: GainKind.ABOUT,
    CostKind.OR_MORE: GainKind.ABOUT,
    CostKind.AT_LEAST: GainKind.AT_LEAST,
}


def with_gains(
    findings: Sequence[Finding],
    throughput: Throughput,
    step: StepSummary | None,
    beside_others: bool = False,
    steps_s: float | None = None,
    workers: tuple[int, float] | None = None,
) -> list[Finding]:
    """Return the findings with what their fixes give.

    Args:
        step: The mean step; None: there is none.
        beside_others: Other programs hold all CPUs. A fix that needs less of them leaves more to the
            rest of the step, so it may save more than its cause takes: that time is then neither
            a bound nor an estimate. What lies outside the steps is not affected.
        steps_s: Seconds of all steps, with those that the mean leaves out. None: not known, as if
            all were like the mean one.
        workers: Number of the loader's workers, and the share (0 to 1) of the time in which they
            make batches: more of them make no more than that allows. None: there are none.
    """
    gains = (
        _gain(finding, throughput, step, beside_others, steps_s, _times(finding, workers))
        for finding in findings
    )
    return [replace(finding, gain=gain) for finding, gain in zip(findings, gains)]


def _gain(
    finding: Finding,
    throughput: Throughput,
    step: StepSummary | None,
    beside_others: bool,
    steps_s: float | None,
    times: float,
) -> Gain | None:
    """Return the gain; None for a finding that asks for no change or costs no time."""
    told = finding.predicted
    if told is not None:
        return predicted_gain(told)
    if finding.severity is Severity.INFO or not (finding.cost_s > 0 or finding.outside_s):
        return None
    rate, unit = throughput.of_all_ranks, "samples/s"
    if rate is None:
        rate, unit = throughput.steps_per_s, "steps/s"
    if finding.outside_s and step is not None and rate:
        steady_s = step.mean_s * throughput.steps
        whole_s = (steps_s or steady_s) + step.evaluating_s
        left_s = whole_s - finding.outside_s
        made, of = rate * steady_s, f"{unit} of the whole run"
        return Gain(GainKind.AT_MOST, of, made / whole_s, made / left_s)
    kind, most = _KINDS.get(finding.cost_kind), finding.at_most_per_s
    if step is None or not rate or kind is None or finding.cost_s >= step.mean_s:
        return Gain(GainKind.UNKNOWN, unit)
    after, low, high = (
        None
        if cost_s is None or cost_s >= step.mean_s
        else min(_without(step.mean_s, cost_s, rate), times * rate)
        for cost_s in (finding.cost_s, finding.cost_low_s, finding.cost_high_s)
    )
    part_only = (
        finding.cost_kind is CostKind.AT_LEAST
    )  # a fix may save more than that, in a replay too
    if most is not None and after is not None and not part_only:
        return Gain(GainKind.AT_MOST, unit, rate, max(after, most))
    if kind is GainKind.AT_MOST and beside_others:
        return Gain(GainKind.UNKNOWN, unit)
    return Gain(kind, unit, rate, after, low, high)


def _times(finding: Finding, workers: tuple[int, float] | None) -> float:
    """Return how many times as many batches the workers of a fix can make.

    It is inf where the fix is something else, or that is not known.
    """
    rule, then = BY_ID.get(finding.rule_id), finding.settings.get("num_workers")
    if rule is None or not rule.by_settings or rule.of_others or not isinstance(then, int):
        return math.inf
    of_fix = rule.effort is Effort.SETTING or finding.cost_kind is CostKind.BOUND
    if workers is None or not of_fix or not 0 < workers[0] < then:
        return math.inf
    return then / workers[0] / (workers[1] or 1.0)


def _without(mean_s: float, cost_s: float, rate: float) -> float:
    """Return the rate without what costs this much of the step."""
    return rate * mean_s / (mean_s - cost_s)
