"""The verdict: one or two sentences, with figures, for those who read nothing else."""

from collections.abc import Sequence

from feedline.analysis.convergence.checks import ASIDE, DIVERGED, GRAVE
from feedline.analysis.formatting import seconds, sentence, share
from feedline.analysis.ledger.facts import RuleInputs
from feedline.analysis.ledger.finding import SHARE, Finding, Severity, rates, saving
from feedline.analysis.ledger.rule import Effort, Statement
from feedline.analysis.ledger.trace_facts import TraceFacts, mean_step_s
from feedline.analysis.ledger.view.enough_steps import maybe_below, only_infers, unsure
from feedline.analysis.ledger.view.handover import setting
from feedline.analysis.ledger.view.input_wait import num_workers, steady_share
from feedline.analysis.rules import BY_ID, first_stating
from feedline.analysis.traces.trace_budget import STEP_PARTS

#: What a finding about how the training is set up makes of it.
_WRONG_SET_UP = "Misconfigured"
_WRONG = dict.fromkeys(GRAVE, _WRONG_SET_UP) | dict.fromkeys(DIVERGED, "Training diverged")

#: What a run is called that waits for its input; the second, where the interval of its share also
#: contains shares that do not count.
_SURE, _PERHAPS = "Input-bound", "Probably input-bound"

#: Before the verdict of a program that only calls its model.
_ONLY_INFERS = (
    "No training was seen (no backward pass and no optimizer update); steps are the "
    "loader's batches. "
)


def leading(findings: Sequence[Finding]) -> Finding | None:
    """Return the finding that the verdict tells; None without findings."""
    return next(
        (finding for finding in findings if finding.rule_id not in ASIDE),
        findings[0] if findings else None,
    )


def verdict(findings: Sequence[Finding], run: RuleInputs) -> str:
    """Return what limits a recorded run, by how much, and what to change.

    Args:
        findings: of the same run, most important first.
    """
    said = _verdict(findings, run)
    return f"{_ONLY_INFERS}{said}" if only_infers(run) else said


def _verdict(findings: Sequence[Finding], run: RuleInputs) -> str:
    top = leading(findings)
    if top is None:
        return "What limits this run is unknown: no rule applies to it."
    if top.rule_id in _WRONG or top.rule_id in ASIDE:
        return f"{_WRONG.get(top.rule_id, _WRONG_SET_UP)}: {top.message}."
    rule, change = BY_ID[top.rule_id], setting(run, top.settings) if top.settings else ""
    called = _SURE if not rule.bound else rule.bound
    if not rule.of_input:
        weight = _weight(top, run.step.mean_s) if rule.in_part else Severity.HIGH
        return _sentences(top, run.step.mean_s, _partly(called, weight), change=change)
    goes = (
        "waits for data"
        if run.loader is not None and num_workers(run) != 0
        else "goes to the input"
    )
    waits = (
        f"{share(steady_share(run))}{unsure(run)} of each {seconds(run.step.mean_s)} step {goes}. "
    )
    if rule.in_part:
        called = _PERHAPS if maybe_below(run) else _partly(called, Severity.of(steady_share(run)))
    return _sentences(top, run.step.mean_s, called, waits, change)


def verdict_of_traces(findings: Sequence[Finding], trace: TraceFacts) -> str:
    """Return the same of traces."""
    mean_s = mean_step_s(trace.budgets[trace.rank])
    computes = first_stating(findings, Statement.DEVICE_BUSY)
    if (
        computes is not None and findings[0].severity is Severity.LOW
    ):  # what else costs a little is not what binds it
        return (
            f"{sentence(computes.message)}. "
            f"{sentence(findings[0].message)}.{saving(findings[0], mean_s)}"
        )
    if not findings:
        most = max(STEP_PARTS, key=trace.share)
        return (
            f"No single cause takes 5 % or more of {trace.whole}; {share(trace.share(most))} "
            f"of it is {most.replace('_', ' ')}."
        )
    rule = BY_ID[findings[0].rule_id]
    called = rule.bound or _SURE
    if rule.bound_or_input and "loader_pct" in trace.shown.input.reasons:
        called = rule.bound_or_input
    return _sentences(
        findings[0], mean_s, _partly(called, _weight(findings[0], mean_s))
    ) + _unexplained(trace, findings[0])


def _weight(finding: Finding, mean_s: float | None) -> Severity:
    """Return the weight of what it costs alone.

    A finding is also of low severity where the steps are too few to be sure.
    """
    return (
        Severity.of(finding.cost_s / mean_s) if finding.cost_s > 0 and mean_s else finding.severity
    )


def _partly(bound: str, weight: Severity) -> str:
    """Return ``Partly input-bound``, where what binds the run takes less than a fifth of its step."""
    if weight is Severity.HIGH:
        return bound
    return f"Partly {bound if bound.startswith('GPU') else bound[0].lower() + bound[1:]}"


def _sentences(
    top: Finding, mean_s: float | None, bound: str, waits: str = "", change: str = ""
) -> str:
    """Return what limits the training, by how much, what to change, and what that saves.

    What to change is said where it is a setting.

    Args:
        bound: what the run is called.
        waits: a sentence about the input, where the finding does not say how much of the step it
            takes.
        change: of the loader's settings, as an instruction; empty: it names none.
    """
    if top.severity is Severity.INFO:
        return f"{sentence(top.message)}."
    said = f"{waits}{sentence(top.message)}" if waits else top.message
    return f"{bound}: {said}.{_gain(top, mean_s, change)}"


def _gain(top: Finding, mean_s: float | None, change: str) -> str:
    """Return what to change where that is a setting, and what it gives."""
    rule = BY_ID.get(top.rule_id)
    if (
        rule is None
        or not rule.by_settings
        or not change
        or (top.predicted is None and rule.effort is not Effort.SETTING)
    ):
        return saving(top, mean_s)
    return (
        f" {change}.{saving(top, mean_s)}"
        if top.predicted is None
        else f" {change}: {rates(top.predicted)}."
    )


def _unexplained(trace: TraceFacts, top: Finding) -> str:
    """Return a sentence where more than the first finding tells of is unknown."""
    part = trace.share("unexplained")
    told_share = next((evidence.value for evidence in top.evidence if evidence.unit == SHARE), 0.0)
    if Severity.of(part) is Severity.INFO or part < told_share:
        return ""
    return (
        f" {share(part)} of {trace.whole} is unexplained: the device was idle, and the trace "
        f"does not show what the host did."
    )
