"""Holds costs and predictions against the limits of the roofline that stay with a change.

What a finding's fix gives, as one number with its kind, is decided here and nowhere else.
"""

import dataclasses
import math
from collections.abc import Iterable, Sequence
from dataclasses import replace

from feedline.analysis.explain.limit_words import holds, is_rough
from feedline.analysis.explain.model import Report, Roofline, ThroughputBound
from feedline.analysis.ledger.finding import (
    Change,
    CostKind,
    Finding,
    Gain,
    GainKind,
    PredictedRate,
    Refused,
    Severity,
    predicted_gain,
)
from feedline.analysis.ledger.rule import AS_MUCH_CPU, CHEAPER, LESS_TO_COMPUTE, Effort, Statement
from feedline.analysis.measure.model import Throughput
from feedline.analysis.measure.stages import INPUT_STAGES, MAKING_STAGES
from feedline.analysis.measure.step_model import StepSummary
from feedline.analysis.rules import BY_ID

_GRAVEST = list(Severity)[::-1]
# id of the limit that holds even where it is the nearest: a batch that comes earlier does not make
# the GPU's work shorter
_GPU = "gpu"
_ABOVE = Refused(
    "above_limit",
    "The replay of this change is faster than a limit of this run allows, so it predicts nothing.",
)
_CLOCKS = 0.03  # what limits are off by, too (analysis/explain/roofs.py)
# whose work is a batch's: that of all others is a step's
_OF_BATCHES = frozenset({*MAKING_STAGES, *INPUT_STAGES, "pin"})
_KINDS = {
    CostKind.PREDICTED: GainKind.PREDICTED,
    CostKind.BOUND: GainKind.AT_MOST,
    CostKind.ESTIMATED: GainKind.ABOUT,
    CostKind.OR_MORE: GainKind.ABOUT,
    CostKind.AT_LEAST: GainKind.AT_LEAST,
}


def cap_at_next_limit(
    findings: Sequence[Finding], limits: Roofline | None, mean_s: float
) -> list[Finding]:
    """Let no finding cost more than the next limit lets its fix save.

    Args:
        limits: of the same run; None: they are unknown.
        mean_s: of the step.
    """
    full = _cpus_are_full(finding.rule_id for finding in findings)
    kept = [_at_most(finding, mean_s, limits, full) if limits else finding for finding in findings]
    if full:
        more = [
            _relieves(finding, before.cost_s, limits) for finding, before in zip(kept, findings)
        ]
        kept = [
            dataclasses.replace(finding, cost_kind=CostKind.OR_MORE) if relieves else finding
            for finding, relieves in zip(kept, more)
        ]
    return sorted(kept, key=lambda finding: _GRAVEST.index(finding.severity))


def _cpus_are_full(causes: Iterable[str]) -> bool:
    """Tell whether one of these findings says that the CPUs are full."""
    return any(BY_ID[cause].states is Statement.CPUS_FULL for cause in causes if cause in BY_ID)


def _lifted(rule_id: str, full: bool) -> frozenset[str]:
    """Return the kinds of limits that the fix of a cause lifts.

    Args:
        full: the CPUs are. A sample that takes less of them then leaves more to the main thread,
            whose waits for a CPU the limit of the step holds.
    """
    return _with_what_follows(BY_ID[rule_id].lifts if rule_id in BY_ID else CHEAPER, full)


def lifted_by(change: Change, workers: object, full: bool) -> frozenset[str]:
    """Return the kinds of limits that a change lifts.

    Args:
        workers: of the run, as recorded.
        full: the CPUs are, as of ``lifted``.
    """
    settings, kinds = change.settings, set(change.lifts)
    if settings:
        kinds |= CHEAPER | {"step"} if settings.keys() == {"persistent_workers"} else AS_MUCH_CPU
    left = settings.get("num_workers", workers)
    if isinstance(workers, int) and isinstance(left, int) and left < workers:
        kinds.add("step")  # which holds receiving, and the main thread's own waits for a CPU
        kinds |= set() if left else {"cores"}  # nothing is handed over any more, which takes CPUs
    made, computed = (
        [factor for stage, factor in change.stages.items() if (stage in _OF_BATCHES) is of_batches]
        for of_batches in (True, False)
    )
    if made:
        kinds |= CHEAPER if any(factor.cpu < 1 for factor in made) else AS_MUCH_CPU
    if computed:
        kinds |= LESS_TO_COMPUTE if any(factor.cpu < 1 for factor in computed) else {"step"}
    if change.cpus is not None:
        kinds |= {"cores", "step"}
    if change.endless:
        kinds |= CHEAPER | {"step"}
    return _with_what_follows(frozenset(kinds), full)


def _with_what_follows(kinds: frozenset[str], full: bool) -> frozenset[str]:
    """Return these kinds of limits, with those that rise with these.

    Where making a batch and computing on it take turns, a shorter step makes both shorter.
    """
    kinds |= {"step"} if full and CHEAPER <= kinds else frozenset()
    return kinds | {"turns"} if "step" in kinds else kinds


def held(rate: PredictedRate, limits: Roofline, lifts: frozenset[str]) -> PredictedRate | Refused:
    """Hold a prediction of the loader's replay to the lowest limit that its change does not lift.

    Its interval holds what limits are off by. A limit that is rough holds only the lower end of the
    interval; where even that is above, nothing is predicted.
    """
    ids = [roof.id for roof in limits.roofs]
    above = limits.roofs[ids.index(limits.nearest_id) :] if limits.nearest_id in ids else []
    stays = [roof for roof in above if roof.binds and roof.kind not in lifts]
    limit = min(stays, key=lambda roof: roof.high or roof.samples_per_s, default=None)
    if limit is None:
        return rate
    most_per_s = rate.before * max(_times(limit, limits), 1.0)
    rough = is_rough(
        limit, limits.samples_per_s, limits.nearest_id if limit.id != limits.nearest_id else None
    )
    if rate.low > most_per_s * (1 + _CLOCKS if rough else 1.0):
        return _ABOVE
    if rough or rate.high <= most_per_s * (1 + _CLOCKS) and rate.after <= most_per_s:
        return rate
    return dataclasses.replace(
        rate, after=min(rate.after, most_per_s), high=min(rate.high, most_per_s * (1 + _CLOCKS))
    )


def beyond(finding: Finding, report: Report) -> str:
    """Return what to know of a prediction above the next limit; empty for one that keeps to it."""
    following = _exceeded(finding.predicted, report.roofline)
    if following is None:
        return ""
    if finding.cost_kind is CostKind.PREDICTED:
        return (
            f"; above the next limit ({following.name}) of the rank that is shown, which the "
            f"fix removes"
        )
    raises = following.kind in _lifted(
        finding.rule_id, _cpus_are_full(other.rule_id for other in report.findings)
    )
    return (
        f"; above the next limit ({following.name}), which "
        f"{'this fix also raises' if raises else 'is rough'}"
    )


def beyond_together(findings: Sequence[Finding], report: Report) -> str:
    """Return what to know of these findings' fixes together; empty if they keep to the limit."""
    following = _exceeded(report.together, report.roofline)
    if following is None:
        return ""
    full = _cpus_are_full(other.rule_id for other in report.findings)
    raise_it = any(following.kind in _lifted(finding.rule_id, full) for finding in findings)
    return (
        f"; above the next limit ({following.name}), which "
        f"{'these fixes also raise' if raise_it else 'is rough'}"
    )


def _exceeded(rate: PredictedRate | None, limits: Roofline | None) -> ThroughputBound | None:
    """Return the next limit, if a prediction is above it."""
    following = (
        next((roof for roof in limits.roofs if roof.id == limits.next_id), None) if limits else None
    )
    if limits is None or following is None or rate is None:
        return None
    return (
        following
        if limits.samples_per_s * rate.after / rate.before > following.samples_per_s * (1 + _CLOCKS)
        else None
    )


def _limit(finding: Finding, limits: Roofline, full: bool) -> ThroughputBound | None:
    """Return the limit that stays with this finding's fix."""
    ids = [roof.id for roof in limits.roofs]
    first = limits.nearest_id if limits.nearest_id == _GPU else limits.next_id
    above = limits.roofs[ids.index(first) :] if first in ids else []
    gone = _lifted(finding.rule_id, full)
    kept = [roof for roof in above if roof.binds and roof.kind not in gone]
    return min(kept, key=lambda roof: roof.high or roof.samples_per_s, default=None)


def _times(limit: ThroughputBound | None, limits: Roofline) -> float:
    """Return what the rate is at most, over what it is."""
    return math.inf if limit is None else (limit.high or limit.samples_per_s) / limits.samples_per_s


def _relieves(finding: Finding, cost_s: float, limits: Roofline | None) -> bool:
    """Tell whether its fix leaves more of full CPUs to the step than it costs.

    No other limit holds that.

    Args:
        cost_s: before it was held against the next limit.
    """
    rule = BY_ID.get(finding.rule_id)
    if (
        rule is None
        or not CHEAPER <= rule.lifts
        or finding.cost_kind is not CostKind.ESTIMATED
        or finding.cost_s < cost_s
    ):
        return False
    # then no workers compete for the CPUs
    in_turns = limits is not None and any(roof.id == "turns" for roof in limits.roofs)
    return finding.severity is not Severity.INFO and not in_turns


def _at_most(finding: Finding, mean_s: float, limits: Roofline, full: bool) -> Finding:
    """Let a finding cost at most what the next limit leaves.

    That is a bound if the limit is one: other limits are made of times that change with the rate,
    and say as much as an estimate.
    """
    limit = _limit(finding, limits, full)
    most_s = mean_s * (1 - 1 / max(_times(limit, limits), 1.0))
    if limit is None or finding.cost_s <= most_s or finding.cost_kind is CostKind.PREDICTED:
        return finding
    weight = max(finding.severity, Severity.of(most_s / mean_s), key=_GRAVEST.index)
    kind = CostKind.BOUND if holds(limit) else finding.cost_kind
    return dataclasses.replace(finding, cost_s=most_s, severity=weight, cost_kind=kind)


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
        _gain(
            finding,
            throughput,
            step,
            beside_others,
            steps_s,
            _times_as_many_batches(finding, workers),
        )
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


def _times_as_many_batches(finding: Finding, workers: tuple[int, float] | None) -> float:
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
