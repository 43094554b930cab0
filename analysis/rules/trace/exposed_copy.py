"""Copies between host and device run while nothing computes."""

from feedline.analysis.finding import SHARE, Evidence, Finding, Severity, measured
from feedline.analysis.formatting import share, size
from feedline.analysis.predict.change import Refused
from feedline.analysis.traces.facts import TraceFacts

RULE_ID = "exposed_copy"


def check(facts: TraceFacts) -> Finding | None:
    """Weigh copies that overlap with neither computing nor communication."""
    part = facts.share("exposed_copy")
    weight = Severity.of(part)
    if weight is Severity.INFO:
        return None
    to_device = [row for row in facts.shown.copies if row.which.direction == "HtoD"]
    pageable = sum(row.total_ns for row in to_device if row.which.memory == "pageable")
    total = sum(row.total_ns for row in to_device)
    slow = pageable > total / 2 > 0
    back = sum(row.total_ns for row in facts.shown.copies if row.which.direction == "DtoH") > total
    nbytes = sum(row.nbytes or 0 for row in to_device)
    amount = f" ({size(nbytes)} were copied {facts.in_steps})" if nbytes else ""
    return Finding(
        RULE_ID,
        weight,
        message=f"copies that overlap with no computation take {share(part)} of {facts.whole}"
        + (f"; {share(pageable / total)} of host-to-device copy time is spent on pageable memory" if slow else ""),
        evidence=[
            Evidence("exposed_copy_share", "exposed copies", part, SHARE),
            *measured([("copied_bytes", f"copied to the device {facts.in_steps}", nbytes or None, "B")]),
        ],
        fix="Copy results to the host less often, or into pinned memory with non_blocking=True, and record a torch.cuda.Event right after "
        "the copy: call its synchronize() before reading the results."
        if back
        else "Copy from pinned memory (DataLoader(..., pin_memory=True), or tensor.pin_memory()) with .to(device, non_blocking=True)."
        if slow
        else f"Copy the next batch on a stream of its own while this one computes{amount}, or copy fewer bytes (a smaller dtype).",
        how_to_check="Keep batches and results on the device. If the step is no faster, this finding is wrong.",
        cost_s=facts.cost_s("exposed_copy"),
    )


def change(facts: TraceFacts) -> Refused:
    """Nothing is predicted: how much copying the device can hide is unknown."""
    return Refused("unknown_copy", "How much of the copying would overlap is unknown. Change one copy, and trace again.")
