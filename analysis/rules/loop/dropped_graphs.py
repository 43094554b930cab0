"""A forward pass in each step is not learned from: its graph is dropped before any backward pass."""

from feedline.analysis.ledger.facts import RuleInputs
from feedline.analysis.ledger.finding import (
    SHARE,
    Change,
    CostKind,
    Evidence,
    Factor,
    Finding,
    Refused,
    Severity,
)
from feedline.analysis.ledger.rule import LESS_TO_COMPUTE, Rule
from feedline.analysis.measure.code_places import FORWARD
from feedline.analysis.text.sentences import PERCENT, Sentence

_RULE_ID = "dropped_graphs"

_SAYS = Sentence(
    "nothing is learned from a forward pass that takes {part} of the step: its graph is dropped "
    "before any backward",
    part=PERCENT,
)
_UNUSED = "its result is overwritten before it is read"
_GRADIENTS = "a forward pass with gradients keeps what its backward pass would need"
_REMOVE = "Remove this call of the model: its result is not used."
_NO_GRAD = "Call the model under torch.no_grad() there."
_OR_REMOVE = "If its result is not used at all, remove the call."
_LEAVE_OUT = "Leave the call out for some steps. If they take as long, this finding is wrong."
_TRY = "Call it under torch.no_grad() for some steps. If they take as long, this finding is wrong."

_NOT_KNOWN = Refused("no_grad", "How much faster it is under torch.no_grad() is not known.")
#: Of a pass, what it takes less under torch.no_grad(), at most (docs/rules/dropped_graphs.md).
_SPARED = 1 / 3


def _host_s(facts: RuleInputs) -> float:
    """Return what the host takes for these forwards in the mean step."""
    dropped = facts.dropped
    return min(dropped.seconds, facts.step.stages.get(FORWARD, 0.0)) if dropped is not None else 0.0


def _taken_s(facts: RuleInputs) -> float:
    """Return what these forwards take of the mean step.

    Of a call that can be removed, the host's time: that is saved at least, whatever a GPU saves.
    """
    host_s = _host_s(facts)
    removed = facts.dropped is None or facts.dropped.unused
    return host_s if removed else facts.computing_part_s(FORWARD, host_s)


def _check(facts: RuleInputs) -> Finding | None:
    """Weigh forwards whose graphs were gone in the steps that were looked at."""
    dropped, took = facts.dropped, _taken_s(facts)
    cost_s = took * _spared(facts)
    weight = Severity.of(cost_s / facts.step.mean_s)
    if dropped is None or weight is Severity.INFO:
        return None
    return Finding(
        _RULE_ID,
        weight,
        message=_SAYS(part=took / facts.step.mean_s),
        more=[_UNUSED if dropped.unused else _GRADIENTS],
        evidence=[
            Evidence("dropped_s", "these forward passes, per step", took, "s"),
            Evidence("dropped_share", "share of the step", took / facts.step.mean_s, SHARE),
            Evidence("looks", "steps that were looked at", float(dropped.looks), "1"),
        ],
        fix=_REMOVE if dropped.unused else _NO_GRAD,
        fix_more=[] if dropped.unused else [_OR_REMOVE],
        place=dropped.place,
        how_to_check=_LEAVE_OUT if dropped.unused else _TRY,
        cost_s=cost_s,
        cost_kind=_kind(facts, dropped.unused),
    )


def _kind(facts: RuleInputs, removed: bool) -> CostKind:
    """Return what the cost says: of a GPU's work, not how much less it is without gradients."""
    if removed:
        return CostKind.AT_LEAST
    return CostKind.CAUSE_ONLY if facts.on_gpu else CostKind.BOUND


def _spared(facts: RuleInputs) -> float:
    """Return the share (0 to 1) of these passes that the fix spares, at most."""
    return 1.0 if facts.dropped is not None and facts.dropped.unused else _SPARED


def _change(facts: RuleInputs) -> Change | Refused:
    """Return the forward without what the fix spares, where that is all of these passes."""
    if facts.dropped is None or not facts.dropped.unused:
        return _NOT_KNOWN
    return _without(facts)


def _free(facts: RuleInputs) -> Change | Refused:
    """Return the same where their results may be needed: no more can be saved."""
    if facts.dropped is None or facts.dropped.unused:
        return Refused("removed", "The passes can be removed.")
    return _NOT_KNOWN if facts.on_gpu else _without(facts)


def _without(facts: RuleInputs) -> Change:
    left = 1 - _spared(facts) * _host_s(facts) / facts.step.stages[FORWARD]
    return Change(stages={FORWARD: Factor(left, left)})


RULE: Rule[RuleInputs] = Rule(
    _RULE_ID,
    _check,
    _change,
    claims=(FORWARD,),
    bound="Bound by a forward pass whose graph is dropped",
    lifts=LESS_TO_COMPUTE,
    free=_free,
    action="spare this forward pass",
)
