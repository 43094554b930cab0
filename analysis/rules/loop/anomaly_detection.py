"""Autograd's anomaly detection is on: it keeps a stack for each operation of the model."""

from feedline.analysis.ledger.change import Refused
from feedline.analysis.ledger.facts import RuleInputs
from feedline.analysis.ledger.finding import SHARE, CostKind, Evidence, Finding, Severity
from feedline.analysis.ledger.rule import LESS_TO_COMPUTE, Rule
from feedline.analysis.ledger.view.model_code import besides, line_with
from feedline.analysis.measure.code_places import ANOMALY, COMPILE
from feedline.analysis.sentences import PERCENT, Sentence

RULE_ID = "anomaly_detection"

_SAYS = Sentence(
    "anomaly detection is on: keeping a stack for each operation takes {part} of the step",
    part=PERCENT,
)
_CHECKS = "it also checks each gradient for NaN, which is not part of this figure"
_FIX = "Remove set_detect_anomaly(True), or turn it on only to look for a NaN."
_TURNED_ON = r"\b(set_detect_anomaly|detect_anomaly)\b\s*(\(|=)"


def check(facts: RuleInputs) -> Finding | None:
    """Weigh the stacks that torch keeps, and find the line that turns it on."""
    found = besides(facts, ANOMALY)
    if found is None or facts.code is None or COMPILE in found.stages:
        return None
    share = found.seconds / facts.step.mean_s
    if Severity.of(share) is Severity.INFO:
        return None
    return Finding(
        RULE_ID,
        Severity.of(share),
        message=_SAYS(part=share),
        more=[_CHECKS],
        evidence=[
            Evidence("stacks_s", "keeping stacks, per step", found.seconds, "s"),
            Evidence("stacks_share", "share of the step", share, SHARE),
            Evidence("samples", "samples that show it", found.samples, "1"),
        ],
        fix=_FIX,
        place=line_with(facts.code, _TURNED_ON),
        how_to_check="Print torch.is_anomaly_enabled() in a step. If it is False, this finding is "
        "wrong.",
        cost_s=found.seconds,
        cost_kind=CostKind.AT_LEAST,
    )


def change(facts: RuleInputs) -> Refused:
    """Refuse to predict: what the checks of gradients take is not measured."""
    return Refused("anomaly", "What it takes in the backward pass is not measured.")


RULE: Rule[RuleInputs] = Rule(
    RULE_ID,
    check,
    change,
    claims=("forward", "loss"),
    bound="Slowed by anomaly detection",
    lifts=LESS_TO_COMPUTE,
    supposing="if no stacks were kept",
    called="anomaly detection",
)
