"""DistributedDataParallel looks for parameters without a gradient in each step."""

from feedline.analysis.ledger.facts import RuleInputs
from feedline.analysis.ledger.finding import Change, Finding, Refused, Severity
from feedline.analysis.ledger.rule import LESS_TO_COMPUTE, Rule
from feedline.analysis.ledger.view.model_code import Part, besides, line_with
from feedline.analysis.measure.code_places import AFTER_FORWARD, FORWARD
from feedline.analysis.text.sentences import PERCENT, Sentence

_RULE_ID = "unused_parameters"

_SAYS = Sentence(
    "DistributedDataParallel walks through the graph for unused parameters in each step, which "
    "takes {part} of it",
    part=PERCENT,
)
_FIX = "Leave out find_unused_parameters=True."
_STATIC = "Or, if the same parameters are unused in each step, set static_graph=True."
_CONDITION = "only if every parameter gets a gradient in each step"


def _walk(facts: RuleInputs) -> Part | None:
    return besides(facts, AFTER_FORWARD, FORWARD) if facts.finds_unused else None


def _check(facts: RuleInputs) -> Finding | None:
    """Weigh what follows each forward of DistributedDataParallel, if that looks for them."""
    part = _walk(facts)
    if part is None or facts.code is None or part.severity is Severity.INFO:
        return None
    return Finding(
        _RULE_ID,
        part.severity,
        message=_SAYS(part=part.share),
        evidence=part.evidence("unused", "looking for unused parameters"),
        fix=_FIX,
        fix_more=[_STATIC],
        place=line_with(facts.code, r"\bfind_unused_parameters\b") or part.place,
        condition=_CONDITION,
        how_to_check="Train without find_unused_parameters. If the forward takes as long, this "
        "finding is wrong.",
        cost_s=part.seconds,
    )


def _change(facts: RuleInputs) -> Change | Refused:
    """Return the forward without it."""
    part = _walk(facts)
    if part is None:
        return Refused("unused", "What looking for unused parameters takes is not known.")
    return part.without()


RULE: Rule[RuleInputs] = Rule(
    _RULE_ID,
    _check,
    _change,
    claims=(FORWARD,),
    bound="Slowed by find_unused_parameters",
    lifts=LESS_TO_COMPUTE,
    supposing="if DistributedDataParallel did not look for them",
    action="find_unused_parameters=False",
)
