"""From what traces say to findings: one rule a file, in the order of ``RULES``. Adding one: a module with ``check``, and a line here."""

from collections.abc import Callable
from dataclasses import replace

from feedline.analysis.finding import SHARE, Finding, Severity, saving
from feedline.analysis.quantities import sentence, share
from feedline.analysis.traces.budget import PARTS
from feedline.analysis.traces.facts import TraceFacts, mean_step_s
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
    if not facts.shown.basis.steps:  # what a cause costs per step is unknown
        found = [replace(one, cost_s=0.0) for one in found]
    asking = [one for one in found if one.severity is not Severity.INFO]
    return asking[:MOST] + [one for one in found if one.severity is Severity.INFO]


def verdict(findings: list[Finding], facts: TraceFacts) -> str:
    """A few sentences for those who read nothing else."""
    if not findings:
        most = max(PARTS, key=facts.share)
        what = f"{share(facts.share(most))}, is {most.replace('_', ' ')}"
        return f"no cause that could be removed takes 5 % of {facts.whole}; most of it, {what}"
    top = findings[0]
    saved = saving(top, mean_step_s(facts.budgets[facts.rank])) if top.severity is not Severity.INFO else ""
    return f"{sentence(top.says)}.{saved}{_unexplained(facts, top)}"


def _unexplained(facts: TraceFacts, top: Finding) -> str:
    """A sentence where more than the first finding tells of is unknown."""
    part = facts.share("unexplained")
    told = max((one.value for one in top.evidence if one.unit == SHARE), default=0.0)
    if Severity.of(part) is Severity.INFO or part < told:
        return ""
    return f" {share(part)} of {facts.whole} is unexplained: the device had no work, and the trace shows nothing that the host did."
