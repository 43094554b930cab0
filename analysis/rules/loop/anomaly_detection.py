"""Autograd's anomaly detection is on: it keeps a stack for each operation of the model."""

from feedline.analysis.ledger.facts import RuleInputs
from feedline.analysis.ledger.finding import CostKind, Finding, Refused, Severity
from feedline.analysis.ledger.rule import LESS_TO_COMPUTE, Rule
from feedline.analysis.ledger.view.model_code import besides, line_with
from feedline.analysis.measure.code_places import ANOMALY, COMPILE
from feedline.analysis.text.sentences import PERCENT, Sentence

_RULE_ID = "anomaly_detection"

_SAYS = Sentence(
    "keeping a stack for each operation takes {part} of the step",
    part=PERCENT,
)
_CHECKS = "it also checks each gradient for NaN, which is not part of this figure"
_FIX = "Remove set_detect_anomaly(True), or turn it on only to look for a NaN."
_TURNED_ON = r"\b(set_detect_anomaly|detect_anomaly)\b\s*(\(|=)"


def _check(facts: RuleInputs) -> Finding | None:
    """Weigh the stacks that torch keeps, and find the line that turns it on."""
    part = besides(facts, ANOMALY)
    if part is None or facts.code is None or COMPILE in part.stages:
        return None
    if part.severity is Severity.INFO:
        return None
    return Finding(
        _RULE_ID,
        part.severity,
        message=_SAYS(part=part.share),
        more=[_CHECKS],
        evidence=part.evidence("stacks", "keeping stacks"),
        fix=_FIX,
        place=line_with(facts.code, _TURNED_ON),
        how_to_check="Print torch.is_anomaly_enabled() in a step. If it is False, this finding is "
        "wrong.",
        cost_s=part.seconds,
        cost_kind=CostKind.AT_LEAST,
    )


def _change(facts: RuleInputs) -> Refused:
    """Refuse to predict: what the checks of gradients take is not measured."""
    return Refused("anomaly", "What it takes in the backward pass is not measured.")


RULE: Rule[RuleInputs] = Rule(
    _RULE_ID,
    _check,
    _change,
    claims=("forward", "loss"),
    bound="Slowed by anomaly detection",
    lifts=LESS_TO_COMPUTE,
    supposing="if no stacks were kept",
    action="turn off anomaly detection",
)
