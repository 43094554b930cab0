"""Sentences about what a fix gives, which the terminal and the HTML report share."""

from collections.abc import Sequence

from feedline.analysis.explain import next_limit
from feedline.analysis.explain.model import Report
from feedline.analysis.explain.order import findings_together
from feedline.analysis.ledger.finding import (
    COMPETES,
    CostKind,
    Finding,
    Gain,
    GainKind,
    Severity,
    predicted_gain,
)
from feedline.analysis.ledger.rule import Rule
from feedline.analysis.measure.stages import INPUT_STAGES
from feedline.analysis.report.phrases import full_stop
from feedline.analysis.rules import BY_ID
from feedline.analysis.text.formatting import rate

_KINDS_OF_GAIN = {
    GainKind.ABOUT: "about ",
    GainKind.AT_LEAST: "at least ",
    GainKind.AT_MOST: "at most ",
}
_FASTER = "It supposes that the rest gets faster too"
_FREED = f"{_FASTER}: CPU time is left for it."
_FREE = 0.25  # of the CPUs: where more are free, the rest does not wait for one
_ABOVE = 1.1  # times what a step without input allows: below, it is within the errors


def rates(gained: Gain) -> str:
    """Return the rates before and after: ``81.0 -> 117 samples/s (106 to 123)``."""
    if gained.after is None or gained.before is None:
        return "unknown"
    both = f"{rate(gained.before)} -> {rate_after(gained)} {gained.unit}"
    if gained.low is None or gained.high is None:
        return both
    none = ", perhaps no gain" if gained.low <= gained.before else ""
    return f"{both} ({rate(gained.low)} to {rate(gained.high)}{none})"


def rate_after(gained: Gain) -> str:
    """Return the rate with a fix: ``117``, ``about 95``, ``at least 95``."""
    return f"{_KINDS_OF_GAIN.get(gained.kind, '')}{rate(gained.after)}"


def gain(finding: Finding, report: Report) -> str:
    """Say what a fix gives, how that is known and what it supposes; empty if that is unknown."""
    gained = finding.gain
    if gained is None or gained.after is None:
        return finding.gives
    both = rates(gained)
    if gained.kind is GainKind.PREDICTED:
        return f"{both}{next_limit.beyond(finding, report)}"
    if gained.kind is GainKind.AT_MOST:
        return f"{both} (upper bound, not a prediction)"
    if gained.kind is GainKind.AT_LEAST:
        return f"{both} {_supposing(finding)} (a lower bound: more of its time was not measured)"
    more = f", or more because {COMPETES}" if finding.cost_kind is CostKind.OR_MORE else ""
    return f"{both} {_supposing(finding)} (an estimate from its share of the time{more})"


def gains(report: Report) -> Sequence[str]:
    """Return what the verdict's fix gives, in lines; empty: that is not known."""
    verdict = report.verdict
    if verdict.gain is None:
        return [verdict.gives] if verdict.gives else []
    told = rates(verdict.gain)
    if _exceeds_input(report, verdict.gain):
        return [told, _FREED if _cpus_are_full(report) else f"{_FASTER}."]
    return [" ".join(filter(None, (told, _supposed(verdict.gain, report))))]


def _exceeds_input(report: Report, gained: Gain) -> bool:
    """Return whether a change of the input gives more than a step without any input would."""
    rule, step = BY_ID.get(report.verdict.finding), report.step
    if rule is None or not rule.of_input or step is None or not gained.before or not gained.after:
        return False
    rest = 1 - sum(step.stages.get(name, 0.0) for name in INPUT_STAGES) / step.mean_s
    return rest * gained.after > _ABOVE * gained.before


def _cpus_are_full(report: Report) -> bool:
    """Tell whether hardly a CPU was free while the steps ran: what is spared helps the rest then."""
    use = report.cpus
    return use is not None and use.free is not None and use.free < _FREE * use.allowed


def _supposed(gained: Gain, report: Report) -> str:
    """Return what an estimate supposes; empty: it is none, or supposes that its cost is gone."""
    first = next((one for one in report.findings if one.rule_id == report.verdict.finding), None)
    if first is None or gained.kind is not GainKind.ABOUT:
        return ""
    supposing = _supposing(first)
    return "" if supposing == Rule.supposing else supposing


def _supposing(finding: Finding) -> str:
    """Return what an estimate of its gain supposes.

    The cost of a known call is what its fix saves, which may not be all that it takes.
    """
    rule = BY_ID.get(finding.rule_id)
    if rule is None:
        return ""
    return Rule.supposing if finding.names_known_call else rule.supposing


def gain_or_why(finding: Finding, report: Report) -> str:
    """Return the throughput with the fix and, where it is not predicted, why.

    It is empty if the finding costs no time or asks for no change.
    """
    told = gain(finding, report)
    asks = (
        finding.severity is not Severity.INFO
        and finding.cost_s > 0
        and finding.cost_kind is not CostKind.PREDICTED
    )
    why = finding.refused if asks and finding.predicted is None else ""
    if told:
        return f"{full_stop(told)} {why}".rstrip()
    return f"Not predicted. {why}" if why else ""


def together(report: Report) -> tuple[str, str] | None:
    """Return a heading, and the throughput with several fixes at once.

    None where that is not predicted.
    """
    findings = findings_together(report.findings)
    if report.together is None or len(findings) < 2:
        return None
    named = [finding.rule_id for finding in findings]
    told = f"{rates(predicted_gain(report.together))}{next_limit.beyond_together(findings, report)}"
    return "Fixes", f"{', '.join(named[:-1])} and {named[-1]} together: {told}"
