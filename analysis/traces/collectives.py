"""The collectives of one rank as columns, and the operations by their names.

feedline recorded them, or another tool did.
"""

import re
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np
import numpy.typing as npt

from feedline.analysis.intervals import overlap

#: Looked for in this order in a name without case, underscores and dots: the first that is in it is
#: the operation.
_OPERATION_ORDER = (
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

#: Between two ranks: only where they have a group of their own (Group.between_two) are their
#: numbers the same on both.
BETWEEN_TWO = frozenset({"send", "recv", "send_recv"})
MESSAGE = "send_recv"  # both sides of one

#: How many collectives of a group a backend carries at a time: gloo's two worker threads (torch's
#: ProcessGroupGloo), one NCCL stream.
SLOTS = {"gloo": 2}
COLLECTIVE_DTYPE = np.dtype(
    [
        (
            "start",
            "<i8",
        ),  # ns on the rank's own clock: enqueued: from here on no other rank waits for this one
        ("end", "<i8"),  # ns: complete on this rank; -1: unknown
        (
            "nbytes",
            "<i8",
        ),  # the full message S: all_gather and reduce_scatter count the larger side
        ("sequence", "<i8"),  # number within the group, from 0: the same on all its ranks
        ("group", "<u2"),  # index into Collectives.groups
        ("name", "<u2"),  # index into Collectives.names
        ("phase", "u1"),  # index into PHASES: what this rank was doing when it enqueued
        ("dtype", "u1"),  # index into Collectives.dtypes
        (
            "bucket",
            "?",
        ),  # DistributedDataParallel's reducer began it; of traces, which do not show that, False
    ]
)
PHASES = ("other", "forward", "backward", "optimizer", "loader", "init")
NO_VALUE = -1
UNKNOWN_HOST = "unknown"


def operation(name: str) -> str:
    """Return ``all_reduce``, ``reduce_scatter``, ...; the name itself where it is none of these."""
    bare = re.sub(r"[^a-z]", "", name.lower())
    return next((meant for part, meant in _OPERATION_ORDER if part in bare), name)


def bus_factor(name: str, ranks: int) -> float:
    """Return busbw / algbw, with which rates of all operations and numbers of ranks compare.

    Source: nccl-tests, doc/PERFORMANCE.md.

    Args:
        name: of the collective.
        ranks: n of the group.
    """
    if ranks < 2:
        return 0.0
    what = operation(name)
    if what == "all_reduce":
        return 2 * (ranks - 1) / ranks
    return (
        (ranks - 1) / ranks
        if what in ("reduce_scatter", "all_gather", "all_to_all", "gather", "scatter")
        else 1.0
    )


@dataclass(frozen=True)
class ProcessGroup:
    """A process group.

    Attributes:
        name: the same on all its ranks.
        ranks: global ranks, ascending.
        backend: gloo, nccl, ...
    """

    name: str
    ranks: tuple[int, ...]
    backend: str

    @property
    def between_two(self) -> bool:
        """Whether it holds messages from one rank to another, numbered alike by both.

        Such is ``0 2>3 tag 7`` (profiler/taps/collectives/groups.py).
        """
        return len(self.ranks) == 2 and re.search(r" \d+>\d+( tag \d+)?$", self.name) is not None


@dataclass(frozen=True)
class RankClock:
    """How a rank's clock reads against rank 0's.

    ``reference = own + offset(own)``, linear between measured points.

    Attributes:
        at: own time, ns, ascending; empty: never measured.
        offset: ns, at these points.
        bound: ns: the error that cannot be excluded (half the smallest round trip); inf: never
            measured.
    """

    at: npt.NDArray[np.int64]
    offset: npt.NDArray[np.int64]
    bound: float

    def to_reference(self, own: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
        """Put own times on rank 0's clock; unchanged where no offset was measured."""
        if not len(self.at):
            return own
        # float64 does not hold a whole number of ns since boot, or since 1970
        origin, first = (self.at[0], self.offset[0])
        return (
            own
            + first
            + np.rint(np.interp(own - origin, self.at - origin, self.offset - first)).astype(
                np.int64
            )
        )


@dataclass(frozen=True)
class Collectives:
    """What one rank did together with others.

    Attributes:
        table: COLLECTIVE_DTYPE, in order of ``start``.
        steps: int64 [steps, 2]: own time at which each starts and ends, in order; between two may
            be what was not kept.
        stages: stage of a step ("wait", "copy", "forward", "backward", "optimizer", ...) -> int64
            [k, 2], its intervals in own time.
        unseen: why collectives of some backend or library are missing, in words.
        evaluation: int64 [k, 2], own time, disjoint and in order: no step's time, also where it
            lies in one.
        left_after: batches of the last pass over its training loader, if that came to its end and
            no step followed; None: it did not, or there is no loader.
        stride: every Nth window of batches was kept (profiler/store/segment.py), among them all
            that a rank with a larger stride kept.
        traced: whether they are of another tool's trace.
        live: whether the rank still trains.
        quiet: whether it then has begun and ended nothing for long; what any other live rank has
            not begun or ended yet, it may be about to.
    """

    rank: int
    host: str
    table: npt.NDArray[np.void]
    groups: list[ProcessGroup]
    names: list[str]
    dtypes: list[str]
    steps: npt.NDArray[np.int64]
    stages: dict[str, npt.NDArray[np.int64]]
    clock: RankClock
    unseen: list[str] = field(default_factory=list)
    evaluation: npt.NDArray[np.int64] = field(default_factory=lambda: np.zeros((0, 2), np.int64))
    stride: int = 1
    left_after: int | None = None
    traced: bool = False
    live: bool = False
    quiet: bool = False

    @property
    def moves(self) -> bool:
        """Whether the rank still trains, and has begun or ended something a short while ago."""
        return self.live and not self.quiet

    @cached_property
    def walls(self) -> npt.NDArray[np.int64]:
        """Length of each step, evaluation taken out: int64 [steps], ns."""
        start, end = self.steps.T
        return np.asarray(end - start - overlap(start, end, *self.evaluation.T), np.int64)

    def step_at(self, times: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
        """Return the index of the step in which each moment (own time) lies: int64 [n].

        -1: in none, or in an evaluation.
        """
        step = np.searchsorted(self.steps[:, 0], times, "right") - 1
        inside = (step >= 0) & (times < np.append(self.steps[:, 1], 0)[step])
        inside &= overlap(times, times + 1, *self.evaluation.T) == 0
        return np.where(inside, step, -1)
