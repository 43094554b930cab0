"""From what traces say to findings: one rule a file, in the order of ``RULES``. Adding one: a module with ``check``, and a line here."""

from collections.abc import Callable

from feedline.analysis.finding import Finding, Severity, saving
from feedline.analysis.traces.facts import TraceFacts
from feedline.analysis.traces.rules import (
    device_bound,
    exposed_copy,
    exposed_transfer,
    host_bound,
    input_not_seen,
    input_stall,
    late_rank,
    synchronisation,
)

MOST = 3  # findings that ask for a change

RULES: list[Callable[[TraceFacts], Finding | None]] = [
    input_stall.check,
    late_rank.check,
    exposed_transfer.check,
    host_bound.check,
    synchronisation.check,
    exposed_copy.check,
    device_bound.check,
    input_not_seen.check,
]
_ORDER = [Severity.HIGH, Severity.LOW, Severity.INFO]


def diagnose(facts: TraceFacts) -> list[Finding]:
    """What holds the training back, most costly first: at most three findings that ask for a change, then those that do not."""
    found = [finding for rule in RULES if (finding := rule(facts))]
    found.sort(key=lambda one: (_ORDER.index(one.severity), -one.cost_s))
    asking = [one for one in found if one.severity is not Severity.INFO]
    return asking[:MOST] + [one for one in found if one.severity is Severity.INFO]


def verdict(findings: list[Finding], mean_step_s: float | None) -> str:
    """One or two sentences for those who read nothing else."""
    if not findings:
        return "no single cause takes 5 % of the step: the budget says where the time went"
    top = findings[0]
    saved = saving(top, mean_step_s) if top.severity is not Severity.INFO else ""
    return f"{top.says[:1].upper()}{top.says[1:]}.{saved}"
