"""Activation checkpointing repeats the forward pass in the backward pass."""

from feedline.analysis.ledger.facts import RuleInputs
from feedline.analysis.ledger.finding import Change, Finding, Refused, Severity
from feedline.analysis.ledger.rule import LESS_TO_COMPUTE, Rule
from feedline.analysis.ledger.view.model_code import Part, besides
from feedline.analysis.measure.code_places import BACKWARD, RECOMPUTED
from feedline.analysis.text.sentences import PERCENT, Sentence

_RULE_ID = "recomputed_forward"

_SAYS = Sentence(
    "activation checkpointing repeats the forward pass in the backward pass, which takes {part} "
    "of the step",
    part=PERCENT,
)
_FIX = "Turn off activation checkpointing, or use it for fewer layers."
_CONDITION = "only if memory allows"


def _repeated(facts: RuleInputs) -> Part | None:
    """Return what is repeated; None on a GPU, where the host's time says little of its own."""
    return None if facts.on_gpu else besides(facts, RECOMPUTED, BACKWARD)


def _check(facts: RuleInputs) -> Finding | None:
    """Weigh what the backward pass repeats."""
    part = _repeated(facts)
    if part is None or part.severity is Severity.INFO:
        return None
    return Finding(
        _RULE_ID,
        part.severity,
        message=_SAYS(part=part.share),
        evidence=part.evidence("recomputed", "repeating the forward pass"),
        fix=_FIX,
        place=_called_from(facts),
        condition=_CONDITION,
        how_to_check="Train some steps without checkpointing. If they take as long, this finding "
        "is wrong.",
        cost_s=part.seconds,
    )


def _called_from(facts: RuleInputs) -> str:
    """Return the line that calls checkpoint() in the forward pass, not that of backward()."""
    code = facts.code
    found = code.besides.get(RECOMPUTED) if code is not None else None
    if code is None or found is None:
        return ""
    named = {at: s for at, s in found.lines.items() if "checkpoint" in code.source(*at)}
    file, line = max(named, key=lambda at: named[at], default=("", 0))
    return f"{file}:{line}" if file else ""


def _change(facts: RuleInputs) -> Change | Refused:
    """Return the backward pass without what it repeats."""
    part = _repeated(facts)
    if part is None:
        return Refused("checkpointing", "What the backward pass repeats is not known.")
    return part.without()


RULE: Rule[RuleInputs] = Rule(
    _RULE_ID,
    _check,
    _change,
    claims=("backward",),
    bound="Slowed by activation checkpointing",
    lifts=LESS_TO_COMPUTE,
    supposing="if nothing were repeated",
    action="checkpoint fewer layers",
)
