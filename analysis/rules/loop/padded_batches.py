"""Batches are padded beyond their longest row: the model computes columns that no row needs."""

from feedline.analysis.ledger.change import Change, Factor, Refused
from feedline.analysis.ledger.facts import RuleInputs
from feedline.analysis.ledger.finding import SHARE, CostKind, Evidence, Finding, Severity
from feedline.analysis.ledger.rule import Rule
from feedline.analysis.ledger.view.slow_code import making_line
from feedline.analysis.sentences import PERCENT, Sentence

_RULE_ID = "padded_batches"

_SAYS = Sentence(
    "{part} of a batch is needless padding, and the model takes {of_step} of the step",
    part=PERCENT,
    of_step=PERCENT,
)
_ALL = Sentence("with what shorter rows are filled with, it is {part}", part=PERCENT)
_FIX = "Pad each batch only to its own longest row, in collate_fn."
_KNOWN = "In transformers, tokenize without padding, and use DataCollatorWithPadding."
_BUCKETS = "Batches of rows of similar length need less padding still."
_COMPILED = "With torch.compile or CUDA graphs, pad to a few lengths, such as multiples of 64."
_CONDITION = "only if the model takes batches of different lengths"
_STAGES = ("forward", "loss", "backward")
_LEAST = 0.25  # of a batch


def check(facts: RuleInputs) -> Finding | None:
    """Weigh the part of forward and backward that computes such columns."""
    padding, step = facts.padding, facts.step
    took = sum(step.stages.get(name, 0.0) for name in _STAGES)
    if padding is None or padding.needless < _LEAST:
        return None
    cost_s = padding.needless * took
    weight = Severity.of(cost_s / step.mean_s)
    if weight is Severity.INFO:
        return None
    return Finding(
        _RULE_ID,
        weight,
        message=_SAYS(part=padding.needless, of_step=took / step.mean_s),
        more=[_ALL(part=padding.padded)],
        evidence=[
            Evidence("padding_share", "padding that no row needs", padding.needless, SHARE),
            Evidence("padded_share", "all padding, share of a batch", padding.padded, SHARE),
            Evidence("computing_s", "forward, loss and backward, per step", took, "s"),
            Evidence("computing_share", "share of the step", took / step.mean_s, SHARE),
            Evidence("looks", "batches that were looked at", float(padding.looks), "1"),
        ],
        fix=_FIX,
        fix_more=[_KNOWN, _BUCKETS, _COMPILED],
        place=making_line(facts) or str(facts.setting("made_at") or ""),
        condition=_CONDITION,
        how_to_check="Cut the columns off before the model is called. If steps take as long, this "
        "finding is wrong.",
        cost_s=cost_s,
        cost_kind=CostKind.BOUND if facts.on_gpu else CostKind.ESTIMATED,
    )


def change(facts: RuleInputs) -> Change | Refused:
    """Return what computes with as much less as there is padding; on a GPU, that is not known."""
    if facts.padding is None or facts.on_gpu:
        return Refused("padding", "How much faster a GPU computes shorter rows is not known.")
    left = 1 - facts.padding.needless
    return Change(
        stages={name: Factor(left, left) for name in _STAGES if name in facts.step.stages}
    )


RULE: Rule[RuleInputs] = Rule(
    _RULE_ID,
    check,
    change,
    claims=_STAGES,
    bound="Bound by computing padding",
    lifts=frozenset({"step", "cores", "device", "gpu"}),
    supposing="if computing took as much less as there is padding",
    action="pad less",
)
