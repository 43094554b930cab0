"""What a collective is, whichever way it was named: ``allreduce_`` (c10d), ``ncclDevKernel_AllReduce_Sum_f32_RING_LL``, ``all_reduce``."""

import re

#: Looked for in this order in a name without case, underscores and dots: the first that is in it is the operation.
_ORDER = (
    ("reducescatter", "reduce_scatter"),
    ("allreduce", "all_reduce"),
    ("allgather", "all_gather"),
    ("alltoall", "all_to_all"),
    ("barrier", "barrier"),
    ("broadcast", "broadcast"),
    ("sendrecv", "send_recv"),
    ("scatter", "scatter"),
    ("gather", "gather"),
    ("reduce", "reduce"),
    ("recv", "recv"),
    ("send", "send"),
)

#: Their ranks cannot end before all of them have begun.
TOGETHER = frozenset({"all_reduce", "reduce_scatter", "all_gather", "all_to_all", "barrier"})

#: Between two ranks: only where they have a group of their own (Group.between_two) are their numbers the same on both.
BETWEEN_TWO = frozenset({"send", "recv", "send_recv"})
MESSAGE = "send_recv"  # both sides of one

#: How many collectives of a group a backend carries at a time: gloo's two worker threads (torch's ProcessGroupGloo), one NCCL stream.
SLOTS = {"gloo": 2}


def operation(name: str) -> str:
    """``all_reduce``, ``reduce_scatter``, ...; the name itself where it is none of these."""
    bare = re.sub(r"[^a-z]", "", name.lower())
    return next((meant for part, meant in _ORDER if part in bare), name)


def bus_factor(name: str, ranks: int) -> float:
    """busbw / algbw, so that the figure can be held against a link whatever the operation and the number of ranks.

    Source: nccl-tests, doc/PERFORMANCE.md.

    Args:
        ranks: n of the group.
    """
    if ranks < 2:
        return 0.0
    what = operation(name)
    if what == "all_reduce":
        return 2 * (ranks - 1) / ranks
    return (ranks - 1) / ranks if what in ("reduce_scatter", "all_gather", "all_to_all", "gather", "scatter") else 1.0
