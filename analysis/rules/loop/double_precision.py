"""The model computes in float64: twice the bytes, and half as many numbers in a vector."""

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
from feedline.analysis.ledger.rule import Rule
from feedline.analysis.ledger.view.loop_code import line_of_stage
from feedline.analysis.ledger.view.model_code import line_with
from feedline.analysis.measure.code_places import FORWARD
from feedline.analysis.text.sentences import PERCENT, Sentence

_RULE_ID = "double_precision"

_SAYS = Sentence(
    "the model computes in float64: forward and backward take {part} of the step", part=PERCENT
)
_TWICE = "float32 has half the bytes, and a CPU's vectors hold twice as many of its numbers"
_ON_GPU = "most GPUs compute float64 2 to 64 times more slowly than float32"
_FIX = "Keep the model and its batches in float32: model.float(), and array.astype(np.float32)."
_CONDITION = "only if 7 digits are enough"
_STAGES = ("forward", "loss", "backward")
_ASKED = r"\.double\(\)|\btorch\.(float64|double)\b|np\.float64"
_MIN_SHARE = 0.20  # of the step, in these stages
_HALVED = 0.5


def _is_double(facts: RuleInputs) -> bool:
    return facts.step.flop is not None and facts.step.flop.computed_in == "float64"


def _check(facts: RuleInputs) -> Finding | None:
    """Say so of a model whose products are of float64 and take much of the step."""
    step = facts.step
    took = facts.computing_s(*_STAGES)
    if not _is_double(facts) or took < _MIN_SHARE * step.mean_s:
        return None
    return Finding(
        _RULE_ID,
        Severity.of(_HALVED * took / step.mean_s),
        message=_SAYS(part=took / step.mean_s),
        more=[_ON_GPU if facts.on_gpu else _TWICE],
        evidence=[
            Evidence("computing_s", "forward, loss and backward, per step", took, "s"),
            Evidence("computing_share", "share of the step", took / step.mean_s, SHARE),
        ],
        fix=_FIX,
        place=_place(facts),
        condition=_CONDITION,
        how_to_check="Train some steps in float32. If they take as long, this finding is wrong.",
        cost_s=_HALVED * took,
        cost_kind=CostKind.ESTIMATED,
    )


def _place(facts: RuleInputs) -> str:
    """Return the line that asks for float64, or else the one that calls the model."""
    found = line_with(facts.code, _ASKED) if facts.code is not None else ""
    return found or line_of_stage(facts, FORWARD)


def _change(facts: RuleInputs) -> Change | Refused:
    """Return what computes takes half of its time; on a GPU, how much less is not known."""
    if facts.on_gpu:
        return Refused("double", "How much faster float32 is depends on the GPU.")
    return Change(
        stages={name: Factor(_HALVED, _HALVED) for name in _STAGES if name in facts.step.stages}
    )


RULE: Rule[RuleInputs] = Rule(
    _RULE_ID,
    _check,
    _change,
    claims=_STAGES,
    bound="Bound by float64",
    lifts=frozenset({"step", "cores", "device", "gpu"}),
    supposing="if computing took half of its time",
    action="compute in float32",
)
