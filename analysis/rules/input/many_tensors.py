"""A batch from a worker has many tensors, each of which is received on its own."""

from feedline.analysis.ledger.facts import RuleInputs
from feedline.analysis.ledger.finding import (
    SHARE,
    Change,
    Evidence,
    Factor,
    Finding,
    Refused,
    Severity,
)
from feedline.analysis.ledger.rule import CHEAPER, Rule
from feedline.analysis.ledger.view.handover import MAX_PICKLE_BYTES
from feedline.analysis.ledger.view.input_wait import RECEIVING, input_wait, num_workers, severity
from feedline.analysis.text.sentences import PART, PERCENT, Sentence

_RULE_ID = "many_tensors"

_SAYS = Sentence(
    "receiving batches from workers takes {part} of the step: a batch has {tensors}",
    part=PERCENT,
    tensors=PART,
)
_EACH = "each tensor comes by a file descriptor of its own, however small it is"
_JOIN = "Join tensors of one kind in collate_fn, such as torch.cat of all boxes and their counts."
_SPLIT = "In the loop, tensor.split(counts) gives them out again without copying."

#: Tensors in a batch: fewer are what a batch usually has.
_MANY = 16
#: From here on they are estimated from the first parts (profiler/taps/batch_contents.py).
_COUNTED = 64
#: Tensors that are there with the fix: one of each kind.
_LEFT = 8
#: What a batch costs besides its tensors, in tensors (docs/rules/queue_cost.md).
_BATCH = 2


def _left(facts: RuleInputs) -> float | None:
    """Return the share (0 to 1) of receiving that is left with few tensors; None: there are few."""
    tensors = facts.batch_tensors or 0.0
    pickled = (facts.loader.pickle_bytes if facts.loader else None) or 0.0
    if not num_workers(facts) or tensors < _MANY or pickled > MAX_PICKLE_BYTES:
        return None
    return (_LEFT + _BATCH) / (tensors + _BATCH)


def _check(facts: RuleInputs) -> Finding | None:
    """Weigh what receiving takes with that many tensors more than with one of each kind."""
    left, receiving_s = _left(facts), input_wait(facts).transport_s
    if left is None or facts.batch_tensors is None:
        return None
    cost_s = receiving_s * (1 - left)
    weight = severity(facts, cost_s)
    if weight is Severity.INFO:
        return None
    tensors, share = facts.batch_tensors, receiving_s / facts.step.mean_s
    about = "about " if tensors >= _COUNTED else ""
    return Finding(
        _RULE_ID,
        weight,
        message=_SAYS(part=share, tensors=f"{about}{tensors:.0f} tensors"),
        more=[_EACH],
        evidence=[
            Evidence("batch_tensors", "tensors per batch", tensors, "tensors"),
            Evidence("transport_s", RECEIVING, receiving_s, "s"),
            Evidence("transport_share", "share of the step", share, SHARE),
            Evidence("tensors_s", "of it, what more than a few tensors take", cost_s, "s"),
        ],
        fix=_JOIN,
        fix_more=[_SPLIT],
        place=str(facts.setting("made_at") or ""),
        how_to_check="Return one tensor of each kind from collate_fn. If transport is no faster, "
        "this finding is wrong.",
        cost_s=cost_s,
    )


def _change(facts: RuleInputs) -> Change | Refused:
    """Let receiving take what it takes for a few tensors."""
    left = _left(facts)
    if left is None:
        return Refused("few_tensors", "A batch has few tensors.")
    return Change(stages={"transport": Factor(left, left)})


RULE: Rule[RuleInputs] = Rule(
    _RULE_ID,
    _check,
    _change,
    claims=("sample/transport", "transport", "wait/in_transit", "wait/handover"),
    lifts=CHEAPER | {"step", "ceiling"},
    of_input=True,
    action="join the tensors of a batch",
)
