"""What the time of a sample consists of, and the bytes that it gets from the disk."""

from feedline.analysis.ledger.facts import RuleInputs
from feedline.analysis.measure.costs import accounted_cpu_s
from feedline.analysis.measure.model import Cost

#: CPU of a whole process over that of the threads that are accounted for
#: (docs/rules/thread_oversubscription.md).
MIN_PROCESS_RATIO = 1.2

#: One page: less than that per sample is the file system's own housekeeping.
MIN_DISK_BYTES = 4096

#: What the machine reads back from swap over what samples get from the disk: most of it
#: (docs/rules/swapping.md).
_MIN_SWAP_SHARE = 0.50


def total(facts: RuleInputs) -> Cost | None:
    """Return the whole cost of one sample; None where none was looked at."""
    cost = facts.costs.get("total")
    return cost if cost and cost.wall_s > 0 else None


def blocked_share(facts: RuleInputs) -> float | None:
    """Return the share of a sample's wall time in which it was blocked.

    It waited for a disk, a network, a lock or a sleep.
    """
    cost = total(facts)
    return cost.blocked_s / cost.wall_s if cost and cost.blocked_s is not None else None


def process_ratio(facts: RuleInputs) -> float | None:
    """Return the CPU time of the processes that make samples over that of their known threads.

    Above 1 there are helper threads.
    """
    process_s, accounted_s = facts.process_cpu_s, accounted(facts)
    return process_s / accounted_s if process_s is not None and accounted_s else None


def accounted(facts: RuleInputs) -> float | None:
    """Return the CPU seconds per sample of the threads that make and send it."""
    cost = total(facts)
    return accounted_cpu_s(facts.costs) if cost and cost.cpu_s else None


def from_swap(facts: RuleInputs) -> bool:
    """Tell whether most of what samples get from the disk is swap.

    The kernel counts both as bytes read and as major page faults.
    """
    disk, rate = facts.traffic.disk_bytes, facts.throughput.samples_per_s
    if (
        not disk
        or disk < MIN_DISK_BYTES
        or not rate
        or not facts.swapped_in
        or not facts.traffic.major_faults
    ):
        return False
    return facts.swapped_in >= _MIN_SWAP_SHARE * disk * rate
