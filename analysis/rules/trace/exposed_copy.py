"""Copies between host and device run while nothing computes."""

from feedline.analysis.formatting import share, size
from feedline.analysis.ledger.change import Refused
from feedline.analysis.ledger.finding import SHARE, Evidence, Finding, Severity, measured
from feedline.analysis.ledger.rule import Rule
from feedline.analysis.ledger.trace_facts import TraceFacts

RULE_ID = "exposed_copy"
_WAYS = ("HtoD", "DtoH", "DtoD", "PtoP")  # of those that take equally long, the first


def check(facts: TraceFacts) -> Finding | None:
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
    return Finding(
        RULE_ID,
        weight,
        message=f"copies that overlap with no computation take {share(part)} of {facts.whole}"
        + (
            f"; {share(pageable / took['HtoD'])} of host-to-device copy time is spent on pageable "
            f"memory"
            if slow
            else ""
        ),
        evidence=[
            Evidence("exposed_copy_share", "exposed copies", part, SHARE),
            *measured(
                [("copied_bytes", f"copied to the device {facts.in_steps}", nbytes or None, "B")]
            ),
        ],
        fix=_fix(
            max(_WAYS, key=lambda way: took[way]) if any(took.values()) else "",
            slow,
            f" ({size(nbytes)} were copied {facts.in_steps})" if nbytes else "",
        ),
        how_to_check="Keep batches and results on the device. If the step is no faster, this "
        "finding is wrong.",
        cost_s=facts.cost_s("exposed_copy"),
    )


def _fix(most: str, slow: bool, amount: str) -> str:
    """Say what to change about the copies that take most of the time.

    Args:
        most: which way they go; empty: their names do not say.
        slow: copies to the device are mostly from pageable memory.
        amount: that is copied to the device, in brackets.
    """
    if not most:
        return (
            "Find the calls that copy in the trace, and start them earlier, on a stream of "
            "their own."
        )
    if most == "PtoP":
        return (
            "Most of these copies go from one GPU to another: start them earlier, on a stream "
            "of their own, so that computing hides them."
        )
    if most == "DtoD":
        return (
            "Most of these copies stay on the device: avoid .clone(), .contiguous() and "
            "torch.cat of large tensors."
        )
    if most == "DtoH":
        return (
            "Copy results to the host less often, or into pinned memory with non_blocking=True, "
            "and record a torch.cuda.Event right after "
            "the copy: call its synchronize() before reading the results."
        )
    if slow:
        return (
            "Copy from pinned memory (DataLoader(..., pin_memory=True), or "
            "tensor.pin_memory()) with .to(device, non_blocking=True)."
        )
    return (
        f"Copy the next batch on a stream of its own while this one computes{amount}, or send "
        f"uint8 and convert it on the device."
    )


def change(facts: TraceFacts) -> Refused:
    """Refuse to predict: how much copying the device can hide is unknown."""
    return Refused(
        "unknown_copy",
        "How much of the copying would overlap is unknown. Change one copy, and trace again.",
    )


RULE: Rule[TraceFacts] = Rule(
    RULE_ID, check, change, claims=("exposed_copy",), bound="Bound by copies"
)
