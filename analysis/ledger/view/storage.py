"""What part of a sample's time storage takes, what else blocks it, and what sparing it gives."""

from feedline.analysis.ledger.facts import RuleInputs
from feedline.analysis.ledger.finding import Refused
from feedline.analysis.ledger.view.input_wait import (
    input_wait,
    least_s,
    supply_s,
)
from feedline.analysis.ledger.view.sample import (
    MIN_DISK_BYTES,
    MIN_PROCESS_RATIO,
    blocked_share,
    process_ratio,
    total,
)

#: Waiting for bytes of files: in a call that reads or opens one, or in a page fault outside of any
#: call (memory maps).
STORAGE = ("file", "page fault")

#: Waiting for somebody else to answer: a server, or a process that makes the samples.
ANSWERS = ("network", "another process")

#: Waiting for a lock or another thread.
LOCK = "lock"

#: docs/rules/cold_storage.md. 300 JPEGs from the page cache were blocked for about 0 ms, the same
#: files from the disk for 75 to 83 ms.
MIN_BLOCKED_SHARE = 0.30

#: What was found in all of 10 looks makes up three quarters of the blocked time or more: 0.05 ** (1
#: / 10) = 0.74.
_MIN_LOOKS = 10

#: More than all other causes together.
_MOSTLY = 0.5


def blocked_by(facts: RuleInputs) -> dict[str, float] | None:
    """Return the share of the blocked time by what makers of batches wait for.

    None: that was not seen, or not often enough.
    """
    workers = facts.workers
    return (
        workers.blocked_by if workers is not None and workers.blocked_looks >= _MIN_LOOKS else None
    )


def storage_share(facts: RuleInputs) -> float | None:
    """Return the share (0 to 1) of a sample's time in which it is blocked by storage.

    None: that is not known. Without snapshots, a sample is assumed to wait for the disk if bytes
    came from it.
    """
    blocked, seen = blocked_share(facts), blocked_by(facts)
    if blocked is None:
        return None
    if seen is not None:
        return blocked * sum(seen.get(kind, 0.0) for kind in STORAGE)
    return blocked if (facts.traffic.disk_bytes or 0.0) >= MIN_DISK_BYTES else None


def unknown_answers(workers: int) -> Refused:
    """Say why nothing is predicted of that many workers where samples wait for answers."""
    return Refused(
        "unknown_answers",
        "How many requests the other side answers at once without getting slower is unknown. Try "
        "it: `feedline verify RUN --set "
        f"num_workers={workers}`.",
    )


def decoder_threads(facts: RuleInputs) -> bool:
    """Tell whether samples wait for their decoder's own threads (videos have some).

    They wait at locks, mostly in decode, beside helper threads.
    """
    whole, decode = total(facts), facts.costs.get("decode")
    if whole is None or decode is None or (process_ratio(facts) or 0.0) <= MIN_PROCESS_RATIO:
        return False
    at_locks = (blocked_by(facts) or {}).get(LOCK, 0.0)
    return at_locks > _MOSTLY and (decode.blocked_s or 0.0) > _MOSTLY * (whole.blocked_s or 0.0) > 0


def spared_s(facts: RuleInputs, share: float) -> float:
    """Return the seconds per step that are spared at most without this share of making batches.

    Workers make batches beside the step: of S / W, only what is longer than the rest of it is
    waited for, and what else is waited for shrinks with S. A batch that is ready is handed over
    while the next one is made; where that holds Python's lock (a page fault of a memory map does),
    it waits there too, so that lack of workers shows as a late handover.
    """
    waits, supply = input_wait(facts), supply_s(facts)
    if supply is None:
        return waits.making_s * share
    lack = min(
        waits.making_s + waits.handover_s + waits.transport_s, max(0.0, supply - least_s(facts))
    )
    left = max(0.0, supply * (1 - share) - least_s(facts))
    return max(0.0, waits.making_s - lack) * share + max(0.0, lack - left)
