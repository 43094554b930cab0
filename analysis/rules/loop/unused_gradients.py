"""Gradients are computed that no update uses: they are cleared before the next one."""

from feedline.analysis.ledger.facts import RuleInputs
from feedline.analysis.ledger.finding import SHARE, CostKind, Evidence, Finding, Refused, Severity
from feedline.analysis.ledger.rule import LESS_TO_COMPUTE, Rule
from feedline.analysis.measure.code_places import BACKWARD
from feedline.analysis.text.sentences import COUNT, PERCENT, TIME, Sentence

_RULE_ID = "unused_gradients"

#: Of the parameters that are trained: computing the gradients of fewer takes little of a pass.
_MIN_SHARE = 0.2
#: Of these passes, at most, where what is used goes through as much of the model: passing gradients
#: on takes as long as computing those of parameters.
_UNUSED = 0.5

_SAYS = Sentence(
    "backward passes that take {part} of the step compute gradients that no update uses",
    part=PERCENT,
)
_CLEARED = Sentence(
    "those of {elements} parameters are cleared before an update uses them", elements=COUNT
)
_TAKES = Sentence(
    "the backward passes that compute them, and perhaps others, take {took} per step",
    took=TIME,
)
_FREEZE = (
    "Set requires_grad_(False) for them before the forward pass of that backward pass, and True "
    "after it."
)
_DETACH = (
    "If they alone come before it, as a generator before its critic, fake.detach() does the same."
)
_THROUGH = "Do not detach where other gradients go through them, as through a critic."


def _check(facts: RuleInputs) -> Finding | None:
    """Weigh the backward passes that come between an update and the clearing of its gradients."""
    unused, step = facts.unused_gradients, facts.step
    if unused is None or unused.share < _MIN_SHARE:
        return None
    took_s = facts.computing_part_s(BACKWARD, unused.backward_s)
    weight = Severity.of(_UNUSED * took_s / step.mean_s) if step.mean_s > 0 else Severity.INFO
    if weight is Severity.INFO:
        return None
    return Finding(
        _RULE_ID,
        weight,
        message=_SAYS(part=took_s / step.mean_s),
        more=[_CLEARED(elements=unused.elements), _TAKES(took=took_s)],
        evidence=[
            Evidence("elements", "parameters of these gradients", float(unused.elements), "1"),
            Evidence("elements_share", "share of all that are trained", unused.share, SHARE),
            Evidence("passes_s", "these backward passes, per step", took_s, "s"),
        ],
        fix=_FREEZE,
        fix_more=[_DETACH, _THROUGH],
        place=unused.place,
        how_to_check="Print whether .grad of these parameters is None before zero_grad(). If it "
        "is, this finding is wrong.",
        cost_s=took_s,
        cost_kind=CostKind.CAUSE_ONLY if facts.on_gpu else CostKind.BOUND,
    )


def _change(facts: RuleInputs) -> Refused:
    """Refuse to predict: the same passes compute gradients that are used."""
    return Refused(
        "same_passes", "How much of these backward passes other gradients need is not known."
    )


RULE: Rule[RuleInputs] = Rule(
    _RULE_ID,
    _check,
    _change,
    claims=(BACKWARD,),
    bound="Bound by unused gradients",
    lifts=LESS_TO_COMPUTE,
    supposing="if these backward passes took no time",
    action="skip unused gradients",
)
