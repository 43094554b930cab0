"""Much of a batch is padding: beyond its longest row, or since its rows differ in length."""

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
from feedline.analysis.ledger.view.slow_code import making_line
from feedline.analysis.text.sentences import PERCENT, Sentence

_RULE_ID = "padded_batches"

_SAYS = Sentence(
    "{part} of a batch is needless padding, and the model takes {of_step} of the step",
    part=PERCENT,
    of_step=PERCENT,
)
_SAYS_ROWS = Sentence(
    "{part} of a batch only fills shorter rows, and the model takes {of_step} of the step",
    part=PERCENT,
    of_step=PERCENT,
)
_ALIKE = "Put rows of similar length into one batch, and draw the batches at random."
_SORTED = "A sampler that sorts by length has to see the lengths of rows: check what it sorts by."
_ALL = Sentence("with what shorter rows are filled with, it is {part}", part=PERCENT)
_FIX = "Pad each batch only to its own longest row, in collate_fn."
_KNOWN = "In transformers, tokenize without padding, and use DataCollatorWithPadding."
_BUCKETS = "Batches of rows of similar length need less padding still."
_COMPILED = "With torch.compile or CUDA graphs, pad to a few lengths, such as multiples of 64."
_CONDITION = "only if the model takes batches of different lengths"
_CUT = (
    "Cut the columns off before the model is called. If steps take as long, this finding is wrong."
)
_ROWS = "Train on batches of rows of one length. If samples/s do not rise, this finding is wrong."
_STAGES = ("forward", "loss", "backward")
_LEAST = 0.25  # of a batch
_LEAST_OF_ROWS = 0.4  # rows of texts that are drawn at random differ, and not all of it can go


def _check(facts: RuleInputs) -> Finding | None:
    """Weigh the part of forward and backward that computes such columns."""
    padding, step = facts.padding, facts.step
    took = facts.computing_s(*_STAGES)
    if padding is None:
        return None
    beyond = padding.needless >= _LEAST
    if not beyond and padding.padded < _LEAST_OF_ROWS:
        return None
    part = padding.needless if beyond else padding.padded
    cost_s = part * took
    weight = Severity.of(cost_s / step.mean_s)
    if weight is Severity.INFO:
        return None
    if not beyond:  # so it is with any texts in random order: no mistake
        weight = Severity.LOW
    says = _SAYS if beyond else _SAYS_ROWS
    return Finding(
        _RULE_ID,
        weight,
        message=says(part=part, of_step=took / step.mean_s),
        more=[_ALL(part=padding.padded)] if beyond else [],
        evidence=[
            Evidence("padding_share", "padding that no row needs", padding.needless, SHARE),
            Evidence("padded_share", "all padding, share of a batch", padding.padded, SHARE),
            Evidence("computing_s", "forward, loss and backward, per step", took, "s"),
            Evidence("computing_share", "share of the step", took / step.mean_s, SHARE),
            Evidence("looks", "batches that were looked at", float(padding.looks), "1"),
        ],
        fix=_FIX if beyond else _ALIKE,
        fix_more=[_KNOWN, _BUCKETS, _COMPILED] if beyond else [_SORTED, _COMPILED],
        place=making_line(facts) or str(facts.setting("made_at") or ""),
        condition=_CONDITION,
        how_to_check=_CUT if beyond else _ROWS,
        cost_s=cost_s,
        cost_kind=_kind(facts, beyond),
    )


def _kind(facts: RuleInputs, beyond: bool) -> CostKind:
    """Return what the cost says: of a GPU's work, not how much shorter rows spare."""
    if facts.on_gpu:
        return CostKind.CAUSE_ONLY
    return CostKind.ESTIMATED if beyond else CostKind.BOUND


def _change(facts: RuleInputs) -> Change | Refused:
    """Return what computes with as much less as there is padding; on a GPU, that is not known."""
    if facts.padding is None or facts.on_gpu:
        return Refused("padding", "How much faster a GPU computes shorter rows is not known.")
    if facts.padding.needless < _LEAST:
        return Refused("padding", "How alike in length the rows of a batch can be is not known.")
    left = 1 - facts.padding.needless
    return Change(
        stages={name: Factor(left, left) for name in _STAGES if name in facts.step.stages}
    )


RULE: Rule[RuleInputs] = Rule(
    _RULE_ID,
    _check,
    _change,
    claims=_STAGES,
    bound="Bound by padding",
    lifts=frozenset({"step", "cores", "device", "gpu"}),
    supposing="if computing took as much less as there is padding",
    action="pad less",
)
