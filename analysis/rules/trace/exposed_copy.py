"""Copies between host and device run while nothing computes."""

from feedline.analysis.ledger.finding import SHARE, Evidence, Finding, Refused, Severity, measured
from feedline.analysis.ledger.rule import Rule
from feedline.analysis.ledger.trace_facts import TraceFacts
from feedline.analysis.text.sentences import PART, PERCENT, SIZE, Sentence

_RULE_ID = "exposed_copy"
_SAYS = Sentence(
    "copies that overlap with no computation take {part} of {whole}", part=PERCENT, whole=PART
)
_PAGEABLE = Sentence("{part} of host-to-device copy time is spent on pageable memory", part=PERCENT)
_COPIED = Sentence("{copied} were copied to the device {in_steps}", copied=SIZE, in_steps=PART)
_FIND = "Find the calls that copy in the trace, and start them earlier, on a stream of their own."
_BETWEEN_GPUS = (
    "Start the copies from one GPU to another earlier, on a stream of their own, so that computing "
    "hides them."
)
_ON_DEVICE = (
    "Avoid .clone(), .contiguous() and torch.cat of large tensors: most of these copies stay on "
    "the device."
)
_TO_HOST = [
    "Copy results to the host less often, or into pinned memory with non_blocking=True.",
    "Then record a torch.cuda.Event right after the copy, and call its synchronize() before "
    "reading the results.",
]
_PINNED = [
    "Copy from pinned memory with .to(device, non_blocking=True).",
    "Set pin_memory=True in the DataLoader, or call tensor.pin_memory().",
]
_AHEAD = [
    "Copy the next batch on a stream of its own while this one computes.",
    "Or send uint8 and convert it on the device.",
]
_WAYS = ("HtoD", "DtoH", "DtoD", "PtoP")  # of those that take equally long, the first


def _check(facts: TraceFacts) -> Finding | None:
    """Weigh copies that overlap with neither computing nor communication."""
    part = facts.share("exposed_copy")
    weight = Severity.of(part)
    if weight is Severity.INFO:
        return None
    took = {
        way: sum(row.total_ns for row in facts.shown.copies if row.which.direction == way)
        for way in _WAYS
    }
    to_device = [row for row in facts.shown.copies if row.which.direction == "HtoD"]
    pageable = sum(row.total_ns for row in to_device if row.which.memory == "pageable")
    slow = pageable > took["HtoD"] / 2 > 0
    nbytes = sum(row.nbytes or 0 for row in to_device)
    most = max(_WAYS, key=lambda way: took[way]) if any(took.values()) else ""
    fix, *others = _fixes(most, slow)
    return Finding(
        _RULE_ID,
        weight,
        message=_SAYS(part=part, whole=facts.whole),
        more=[
            *([_PAGEABLE(part=pageable / took["HtoD"])] if slow else []),
            *([_COPIED(copied=nbytes, in_steps=facts.in_steps)] if nbytes else []),
        ],
        evidence=[
            Evidence("exposed_copy_share", "exposed copies", part, SHARE),
            *measured(
                [("copied_bytes", f"copied to the device {facts.in_steps}", nbytes or None, "B")]
            ),
        ],
        fix=fix,
        fix_more=others,
        how_to_check="Keep batches and results on the device. If the step is no faster, this "
        "finding is wrong.",
        cost_s=facts.cost_s("exposed_copy"),
    )


def _fixes(most: str, slow: bool) -> list[str]:
    """Return what to change about the copies that take most of the time.

    Args:
        most: which way they go; empty: their names do not say.
        slow: copies to the device are mostly from pageable memory.
    """
    if not most:
        return [_FIND]
    if most == "PtoP":
        return [_BETWEEN_GPUS]
    if most == "DtoD":
        return [_ON_DEVICE]
    if most == "DtoH":
        return _TO_HOST
    return _PINNED if slow else _AHEAD


def _change(facts: TraceFacts) -> Refused:
    """Refuse to predict: how much copying the device can hide is unknown."""
    return Refused(
        "unknown_copy",
        "How much of the copying would overlap is unknown. Change one copy, and trace again.",
    )


RULE: Rule[TraceFacts] = Rule(
    _RULE_ID,
    _check,
    _change,
    claims=("exposed_copy",),
    bound="Bound by copies",
    action="copy from pinned memory",
)
