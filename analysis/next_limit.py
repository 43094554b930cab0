"""Caps the gain of a finding at the next limit of the roofline, unless its fix lifts that limit too."""

import dataclasses
import math
from collections.abc import Iterable, Sequence

from feedline.analysis.finding import Finding, Severity
from feedline.analysis.model import ROOF_KINDS, Report, Roofline

#: Kinds of limits that the usual fix of an input finding lifts: it makes a sample cheaper.
CHEAPER = frozenset({"workers", "turns", "cores"})

#: Batches are made on more CPUs at once or wait for less: each takes as much CPU time as before.
AS_MUCH_CPU = frozenset({"workers", "turns"})

GRAVEST = list(Severity)[::-1]
SAME = 0.005  # numbers that are printed alike

#: cause -> kinds of limits that its fix lifts, where these are others than CHEAPER.
LIFTS: dict[str, frozenset[str]] = {
    **dict.fromkeys(("too_few_workers", "straggler_in_order", "epoch_restart", "blocked"), AS_MUCH_CPU),
    "cold_storage": AS_MUCH_CPU | {"ceiling"},
    "small_files": CHEAPER | {"ceiling"},
    # the limit of the step holds receiving, copying and the main thread's own waits for a CPU, too
    **dict.fromkeys(("fewer_workers", "busy_neighbors"), AS_MUCH_CPU | {"step"}),
    **dict.fromkeys(("slow_for_its_bytes", "swapping", "thread_oversubscription", "cpu_saturated"), CHEAPER | {"step"}),
    **dict.fromkeys(("objects_in_queue", "custom_collate", "float32_on_host"), CHEAPER | {"step", "ceiling"}),
    # what the input takes, which no limit changes: the sentence says it as well
    **dict.fromkeys(("compute_bound", "borderline_input", "input_bound_unexplained"), frozenset(ROOF_KINDS)),
    **dict.fromkeys(("late_rank", "late_ranks", "exposed_communication", "slow_network"), frozenset({"step"})),
}


def within(findings: Sequence[Finding], limits: Roofline | None, mean_s: float) -> list[Finding]:
    """The findings, none of which costs more than the next limit lets its fix save. Predictions stay as they are.

    Args:
        limits: of the same run; None: they are unknown.
        mean_s: of the step.
    """
    full = cpus_are_full(finding.rule_id for finding in findings)
    kept = [_at_most(finding, mean_s, _limit(finding, limits, full)) if limits else finding for finding in findings]
    return sorted(kept, key=lambda finding: GRAVEST.index(finding.severity))


def cpus_are_full(causes: Iterable[str]) -> bool:
    """Whether one of these findings says so."""
    return "cpu_saturated" in causes


def lifted(rule_id: str, full: bool) -> frozenset[str]:
    """Kinds of limits that the fix of a cause lifts.

    Args:
        full: the CPUs are. A sample that takes less of them then leaves more to the main thread, whose waits for a CPU the limit of the
            step holds.
    """
    kinds = LIFTS.get(rule_id, CHEAPER)
    return kinds | {"step"} if full and CHEAPER <= kinds else kinds


def also_lifted(finding: Finding, report: Report) -> str:
    """Name of the next limit, where the finding's gain is higher because its fix lifts that too; empty otherwise."""
    limits, step = report.roofline, report.step
    if limits is None or limits.next is None or limits.becomes is None or step is None:
        return ""
    return limits.next if gained(step.mean_s, finding.cost_s, limits.samples_per_s) > limits.becomes * (1 + SAME) else ""


def gained(mean_s: float, cost_s: float, rate: float) -> float:
    """The rate without what costs this much of the step."""
    return rate * mean_s / (mean_s - cost_s)


def _limit(finding: Finding, limits: Roofline, full: bool) -> float:
    """What the rate is at most with this finding's fix, over what it is."""
    ids = [roof.id for roof in limits.roofs]
    above = limits.roofs[ids.index(limits.next_id) :] if limits.next_id in ids else []
    gone = lifted(finding.rule_id, full)
    kept = [roof.high or roof.samples_per_s for roof in above if roof.binds and roof.kind not in gone]
    return min(kept, default=math.inf) / limits.samples_per_s


def _at_most(finding: Finding, mean_s: float, times: float) -> Finding:
    most_s = mean_s * (1 - 1 / max(times, 1.0))
    if finding.cost_s <= most_s or finding.predicted:
        return finding
    weight = max(finding.severity, Severity.of(most_s / mean_s), key=GRAVEST.index)
    return dataclasses.replace(finding, cost_s=most_s, severity=weight)
