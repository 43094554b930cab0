"""Activation checkpointing repeats the forward pass in the backward pass."""

from feedline.analysis.ledger.change import Change, Factor, Refused
from feedline.analysis.ledger.facts import RuleInputs
from feedline.analysis.ledger.finding import SHARE, Evidence, Finding, Severity
from feedline.analysis.ledger.rule import LESS_TO_COMPUTE, Rule
from feedline.analysis.ledger.view.model_code import Part, besides
from feedline.analysis.measure.code_places import BACKWARD, RECOMPUTED
from feedline.analysis.sentences import PERCENT, Sentence

RULE_ID = "recomputed_forward"

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


def check(facts: RuleInputs) -> Finding | None:
    """Weigh what the backward pass repeats."""
    found = _repeated(facts)
    if found is None:
        return None
    share = found.seconds / facts.step.mean_s
    if Severity.of(share) is Severity.INFO:
        return None
    return Finding(
        RULE_ID,
        Severity.of(share),
        message=_SAYS(part=share),
        evidence=[
            Evidence("recomputed_s", "repeating the forward pass, per step", found.seconds, "s"),
            Evidence("recomputed_share", "share of the step", share, SHARE),
            Evidence("samples", "samples that show it", found.samples, "1"),
        ],
        fix=_FIX,
        place=_called_from(facts),
        condition=_CONDITION,
        how_to_check="Train some steps without checkpointing. If they take as long, this finding "
        "is wrong.",
        cost_s=found.seconds,
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


def change(facts: RuleInputs) -> Change | Refused:
    """Return the backward pass without what it repeats."""
    found = _repeated(facts)
    if found is None:
        return Refused("checkpointing", "What the backward pass repeats is not known.")
    left = 1 - found.stages[BACKWARD]
    return Change(stages={BACKWARD: Factor(left, left)})


RULE: Rule[RuleInputs] = Rule(
    RULE_ID,
    check,
    change,
    claims=("backward",),
    bound="Slowed by activation checkpointing",
    lifts=LESS_TO_COMPUTE,
    supposing="if nothing were repeated",
    called="activation checkpointing",
)
