"""The verdict: what limits a training, its cause, and what to change."""

from collections.abc import Sequence

from feedline.analysis.convergence.checks import ASIDE, DIVERGED, GRAVE
from feedline.analysis.explain.model import Verdict
from feedline.analysis.ledger.calls_per_sample import PER_SAMPLE
from feedline.analysis.ledger.calls_per_step import PER_STEP, TOLD_BY_MORE
from feedline.analysis.ledger.facts import RuleInputs
from feedline.analysis.ledger.finding import KNOWN_CALL, SHARE, Finding, Severity
from feedline.analysis.ledger.rule import Effort, Statement
from feedline.analysis.ledger.trace_facts import TraceFacts, mean_step_s
from feedline.analysis.ledger.view.cpus import throttled
from feedline.analysis.ledger.view.enough_steps import maybe_below, only_infers
from feedline.analysis.ledger.view.input_wait import steady_share
from feedline.analysis.ledger.view.loader_call import as_code
from feedline.analysis.measure.stages import INPUT_STAGES, OTHER, UNATTRIBUTED
from feedline.analysis.rules import BY_ID, first_stating
from feedline.analysis.text.formatting import sentence
from feedline.analysis.text.sentences import CPUS, NAME, PERCENT, Sentence
from feedline.analysis.traces.trace_budget import STEP_PARTS

#: What a finding about how the training is set up makes of it.
_WRONG_SET_UP = "Misconfigured"
_WRONG = dict.fromkeys(GRAVE, _WRONG_SET_UP) | dict.fromkeys(DIVERGED, "Training diverged")

#: What a run is called that waits for its input; the second, where the interval of its share also
#: contains shares that do not count.
_SURE, _PERHAPS, _CPU = "Input-bound", "Probably input-bound", "CPU-bound"
_PERHAPS_PARTLY = "Perhaps partly input-bound"

_BOUND = Sentence("{bound}: {message}", bound=NAME, message=NAME)
_INPUT = Sentence("Input takes {part} of each step.", part=PERCENT)
_QUOTA = Sentence("The quota of {cpus} CPUs is used up.", cpus=CPUS)
_NO_CAUSE = Sentence(
    "No single cause takes 5 % or more of {whole}: the largest part, {part}, is {name}.",
    whole=NAME,
    part=PERCENT,
    name=NAME,
)
_UNEXPLAINED = Sentence(
    "{part} of {whole} is unexplained: the device was idle, and the trace does not show why.",
    part=PERCENT,
    whole=NAME,
)
_UNEXPLAINED_ON_HOST = Sentence(
    "{part} of {whole} is unexplained: no operator ran, and the trace does not show why.",
    part=PERCENT,
    whole=NAME,
)
_UNKNOWN = Sentence("What limits this run is unknown: no rule applies to it.")
_ONLY_INFERS = Sentence(
    "No training was seen: no backward pass, no optimizer update. Steps are the loader's batches."
)


def leading(findings: Sequence[Finding]) -> Finding | None:
    """Return the finding that the verdict tells; None without findings."""
    return next(
        (finding for finding in findings if finding.rule_id not in ASIDE),
        findings[0] if findings else None,
    )


def verdict(findings: Sequence[Finding], facts: RuleInputs) -> Verdict:
    """Return what limits a recorded run, by how much, and what to change.

    Args:
        findings: of the same run, most important first.
    """
    caveat = _ONLY_INFERS() if only_infers(facts) else ""
    top = leading(findings)
    if top is None:
        return Verdict(_UNKNOWN(), caveat=caveat)
    limit, cause = _limit(top, facts)
    return of_finding(top, limit, " ".join(filter(None, (cause, _known(top)))), caveat)


def _known(top: Finding) -> str:
    """Return what is slow about the call that a finding names; empty: it names none."""
    call = next((one.of for one in top.evidence if one.id == KNOWN_CALL), "")
    return next(
        (known.says for known in (*PER_SAMPLE, *PER_STEP, *TOLD_BY_MORE) if known.name == call), ""
    )


def of_finding(top: Finding | None, limit: str, cause: str = "", caveat: str = "") -> Verdict:
    """Return the verdict that a finding leads.

    Args:
        limit, cause: in words. Empty: what the finding says.
    """
    if top is None:
        return Verdict(limit, cause, caveat=caveat)
    return Verdict(
        limit=limit or _full_stop(top.message),
        cause=cause,
        caveat=caveat,
        fix=shortest_fix(top),
        place=top.place,
        condition=top.condition,
        gain=top.gain,
        gives=top.gives,
        finding=top.rule_id,
    )


def _limit(top: Finding, facts: RuleInputs) -> tuple[str, str]:
    """Return what limits the run, and by what cause."""
    message = _full_stop(top.message)
    if top.rule_id in _WRONG or top.rule_id in ASIDE:
        return _BOUND(bound=_WRONG.get(top.rule_id, _WRONG_SET_UP), message=message), ""
    if top.severity is Severity.INFO:
        return message, ""
    rule = BY_ID[top.rule_id]
    called = rule.bound or _SURE
    if not rule.of_input:
        weight: Severity = Severity.HIGH
        if rule.outside_steps:
            weight = top.severity
        elif rule.in_part:
            weight = _weight(top, facts.step.mean_s)
        return _BOUND(bound=_partly(called, weight), message=message), ""
    if rule.in_part:
        weight = _weight_of_input(facts)
        perhaps = _PERHAPS if weight is Severity.HIGH else _PERHAPS_PARTLY
        called = perhaps if maybe_below(facts) else _partly(called, weight)
    how_long = _INPUT(part=steady_share(facts))
    quota = throttled(facts)  # it holds back all of the training
    if rule.bound:  # by what is not the input alone
        return _BOUND(bound=called, message=message), "" if quota else how_long
    if quota:
        return _BOUND(bound=_CPU, message=_QUOTA(cpus=facts.effective_cpus)), message
    return _BOUND(bound=called, message=how_long), message


def _weight_of_input(facts: RuleInputs) -> Severity:
    """Return the weight of the input, which is low where a stage of computing takes longer."""
    share, mean_s = steady_share(facts), facts.step.mean_s
    others = (
        s
        for name, s in facts.step.stages.items()
        if name not in (*INPUT_STAGES, OTHER, UNATTRIBUTED)
    )
    return Severity.LOW if share * mean_s < max(others, default=0.0) else Severity.of(share)


def verdict_of_traces(findings: Sequence[Finding], facts: TraceFacts) -> Verdict:
    """Return the same of traces."""
    if not findings:
        most = max(STEP_PARTS, key=facts.share)
        name = most.replace("_", " ")
        return Verdict(_NO_CAUSE(whole=facts.whole, part=facts.share(most), name=name))
    top, mean_s = findings[0], mean_step_s(facts.budgets[facts.rank])
    computes = first_stating(findings, Statement.DEVICE_BUSY)
    if computes is not None and top.severity is Severity.LOW:
        # what else costs a little is not what binds it
        return of_finding(top, _full_stop(computes.message), _full_stop(top.message))
    message, cause = _full_stop(top.message), _unexplained(facts, top)
    if top.severity is Severity.INFO:
        return of_finding(top, message, cause)
    rule = BY_ID[top.rule_id]
    called = rule.bound or _SURE
    if rule.bound_or_input and "loader_pct" in facts.shown.input.reasons:
        called = rule.bound_or_input  # whether it waits for data is unknown
    bound = _partly(called, _weight(top, mean_s))
    return of_finding(top, _BOUND(bound=bound, message=message), cause)


def shortest_fix(top: Finding) -> str:
    """Return the change in as few words as it takes: arguments alone, where they are all of it."""
    rule = BY_ID.get(top.rule_id)
    if rule is not None and rule.by_settings and rule.effort is Effort.SETTING and top.settings:
        return as_code(top.settings, top.place)
    return _full_stop(top.fix) if top.fix else ""


def _full_stop(text: str) -> str:
    return sentence(text) if text.endswith((".", "!", "?", "…")) else f"{sentence(text)}."


def _weight(finding: Finding, mean_s: float | None) -> Severity:
    """Return the weight of what it costs alone.

    A finding is also of low severity where the steps are too few to be sure.
    """
    return (
        Severity.of(finding.cost_s / mean_s) if finding.cost_s > 0 and mean_s else finding.severity
    )


def _partly(bound: str, weight: Severity) -> str:
    """Return ``Partly input-bound``, where what binds the run does not weigh much."""
    if weight is Severity.HIGH:
        return bound
    return f"Partly {bound if bound.startswith('GPU') else bound[0].lower() + bound[1:]}"


def _unexplained(facts: TraceFacts, top: Finding) -> str:
    """Return a sentence where more than the first finding tells of is unknown."""
    part = facts.share("unexplained")
    told = next((one.value for one in top.evidence if one.unit == SHARE), 0.0)
    if Severity.of(part) is Severity.INFO or part < told:
        return ""
    says = _UNEXPLAINED if facts.shown.gpu.span_ns else _UNEXPLAINED_ON_HOST
    return says(part=part, whole=facts.whole)
