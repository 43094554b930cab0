"""Parameters or gradients are nearly zero: numbers that a CPU computes with many times more slowly."""

from feedline.analysis.ledger.facts import RuleInputs
from feedline.analysis.ledger.finding import SHARE, CostKind, Evidence, Finding, Refused, Severity
from feedline.analysis.ledger.rule import LESS_TO_COMPUTE, Rule
from feedline.analysis.text.sentences import COUNT, PERCENT, Sentence

_RULE_ID = "denormal_numbers"

_SAYS = Sentence(
    "{part} of parameters and gradients are denormal numbers, which a CPU computes with slowly",
    part=PERCENT,
)
_SEEN = Sentence("they were seen in {seen} of {looks} updates", seen=COUNT, looks=COUNT)
_SMALL = "they are below 1e-38 in float32: nearly zero, and not rounded to it"
_FIX = "Call torch.set_flush_denormal(True) at the beginning: they become zero."
_WHY = "Look for why they are so small: a large weight decay, or a loss that no longer changes."
_STAGES = ("forward", "loss", "backward", "optimizer")


def _check(facts: RuleInputs) -> Finding | None:
    """Weigh by how much steps are longer since there are such numbers."""
    denormal, step = facts.denormal, facts.step
    if denormal is None or denormal.longer is None or facts.on_gpu:
        return None
    computing_s = sum(step.stages.get(name, 0.0) for name in _STAGES)
    cost_s = min(denormal.longer * step.mean_s, computing_s)
    weight = Severity.of(cost_s / step.mean_s)
    if weight is Severity.INFO:
        return None
    return Finding(
        _RULE_ID,
        weight,
        message=_SAYS(part=denormal.most),
        more=[_SMALL, _SEEN(seen=denormal.seen, looks=denormal.looks)],
        evidence=[
            Evidence("denormal_share", "values looked at, largest share", denormal.most, SHARE),
            Evidence("longer_s", "by which the mean step is longer since then", cost_s, "s"),
            Evidence("looks", "updates that were looked at", float(denormal.looks), "1"),
            Evidence("seen", "of them, with such numbers", float(denormal.seen), "1"),
        ],
        fix=_FIX,
        fix_more=[_WHY],
        how_to_check="Train with torch.set_flush_denormal(True). If steps take as long, this "
        "finding is wrong.",
        cost_s=cost_s,
        # other things change as well once numbers get that small
        cost_kind=CostKind.CAUSE_ONLY,
    )


def _change(facts: RuleInputs) -> Refused:
    """Refuse to predict: how many numbers of the model are so small is not known."""
    return Refused("denormal", "Only a few parameters and gradients were looked at: try it.")


RULE: Rule[RuleInputs] = Rule(
    _RULE_ID,
    _check,
    _change,
    claims=_STAGES,
    bound="Slowed by denormal numbers",
    lifts=LESS_TO_COMPUTE,
    supposing="if all steps took as long as those before there were such numbers",
    action="flush denormal numbers",
)
