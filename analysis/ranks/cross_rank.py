"""The ranks of one training on one clock, whoever recorded them.

It tells which collective is which, when all had come, and where the time went.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from feedline.analysis.intervals import BoolArray, IntArray
from feedline.analysis.ranks.aligned_clocks import (
    Alignment,
    Meetings,
    RankArrivals,
    align,
    arrivals_of_differences,
    incomparable_arrivals,
    slot_free_since,
    waited_for,
)
from feedline.analysis.ranks.communication import Communication, RankParts
from feedline.analysis.ranks.match import MISSING, CollectiveTable, match
from feedline.analysis.ranks.partition import Partition, partition
from feedline.analysis.traces.collectives import MESSAGE, Collectives
from feedline.analysis.traces.trace_budget import StepBudget


@dataclass(frozen=True, eq=False)
class CrossRank:
    """All ranks together.

    Attributes:
        ranks: those that belong together, ascending: the columns of ``matched`` and ``met``.
        awaited: bool [m]: no rank is done before the last has begun, or one was seen to wait for
            it. Not messages between two ranks.
        arrivals, partitions: by rank; also of those that ``match`` left out, whose collectives all
            count as transfer.
    """

    ranks: list[Collectives]
    matched: CollectiveTable
    alignment: Alignment
    met: Meetings
    awaited: BoolArray
    arrivals: dict[int, RankArrivals]
    partitions: dict[int, Partition]

    @property
    def bound(self) -> float:
        """Error of the clocks, ns: smaller differences between ranks are within it.

        inf: their clocks cannot be compared.
        """
        return self.alignment.bound

    @property
    def comparable(self) -> bool:
        """Whether there is anything to compare: two ranks, and clocks."""
        return len(self.ranks) > 1 and bool(np.isfinite(self.bound))

    def moving(self) -> npt.NDArray[np.float64]:
        """Put ``Partition.moving`` of all ranks beside each other: float64 [m, ranks].

        It is nan also where a rank took no part.
        """
        took = np.full(self.matched.start.shape, np.nan)
        for column, rank in enumerate(self.ranks):
            row = self.matched.rows[column]
            took[row[row >= 0], column] = self.partitions[rank.rank].moving[row >= 0]
        return took


def combine(
    ranks: Sequence[Collectives],
    aligned: Callable[[Sequence[Collectives], CollectiveTable], Alignment] = align,
) -> CrossRank:
    """Match the collectives of several ranks and compare them on one clock.

    Args:
        ranks: collectives of each.
        aligned: how their clocks are.

    Raises:
        ValueError: two of them are the same rank.
    """
    matched = match(ranks)
    by_rank = {rank.rank: rank for rank in ranks}
    alignment = aligned(ranks, matched)
    met = _find_meetings(matched, alignment)
    column = {rank: number for number, rank in enumerate(matched.ranks)}
    arrivals = {
        rank: _arrivals_of_matched(of_rank, column.get(rank, -1), matched, met, alignment.bound)
        for rank, of_rank in by_rank.items()
    }
    partitions = {rank: partition(of_rank, arrivals[rank]) for rank, of_rank in by_rank.items()}
    ordered = [by_rank[rank] for rank in matched.ranks]
    return CrossRank(
        ordered,
        matched,
        alignment,
        met,
        _awaited(ordered, matched, met, arrivals),
        arrivals,
        partitions,
    )


def _awaited(
    ranks: Sequence[Collectives],
    matched: CollectiveTable,
    met: Meetings,
    arrivals: Mapping[int, RankArrivals],
) -> BoolArray:
    # who receives waits by design
    message = np.array([name == MESSAGE for name in matched.names] or [False])[matched.name]
    awaited = matched.together.copy()
    for column, rank in enumerate(ranks):
        there = matched.rows[column] >= 0
        row, others = matched.rows[column][there], arrivals[rank.rank]
        waited = (others.last > rank.table["start"])[there] & (
            others.late[there] == met.last_column[row]
        )
        awaited[row[waited]] = True
    return awaited & ~message


@dataclass(frozen=True, eq=False)
class RankComparison:
    """What several traces say together.

    Attributes:
        communication: for the report.
        together: the ranks on one clock.
        last: int64 [m]: the rank that began last, by more than the bound after the median of the
            others, -1: none by so much; of the collectives that all ranks of their group left
            traces of, in order of start.
        waiting: rank -> a set (intervals.py), ns since RankTrace.origin_ns: a collective ran, and
            another rank had not begun it.
        budgets: rank -> its budget with ``waiting_for_rank``; only of ranks for which waiting is
            known.
        parts: by rank.
        phases: rank that was late -> phase -> seconds that it took longer than the median of the
            others, most first, over all steps.
        complete: every rank of every group left a trace: who was late can be said.
        notes: sentences for the report.
    """

    communication: Communication
    together: CrossRank
    last: IntArray
    waiting: dict[int, IntArray]
    budgets: dict[int, StepBudget]
    parts: dict[int, RankParts]
    phases: dict[int, dict[str, float]]
    complete: bool
    notes: list[str]


def _find_meetings(matched: CollectiveTable, alignment: Alignment) -> Meetings:
    """Find when all ranks had come to each collective, and when its bytes could move.

    In most operations no rank is done before all have begun. In a broadcast, a reduce or a message
    between two ranks some can be: NCCL's root leaves what fits into the buffers of its receivers
    and goes on, gloo's waits until each of them has asked for its part. How long a rank waited is
    seen from its own end: it did not wait for a rank that began after that.
    """
    start, end = alignment.reference(matched.start), alignment.reference(matched.end)
    last = start.max(1, initial=MISSING)
    free = last.copy()
    for number, group in enumerate(matched.groups):
        if group.between_two:
            continue  # messages do not go through the queue of collectives
        rows = np.flatnonzero(matched.group == number)
        for column in np.flatnonzero(matched.member[rows[0]] if len(rows) else []).tolist():
            free[rows] = np.maximum(free[rows], slot_free_since(end[rows, column], group.backend))
    column = start.argmax(1) if start.shape[1] else np.zeros(len(start), np.int64)
    return Meetings(start, end, last, column, free)


def _arrivals_of_matched(
    collectives: Collectives, column: int, matched: CollectiveTable, met: Meetings, bound: float
) -> RankArrivals:
    """Return when the others came to the collectives of one of several matched ranks.

    Args:
        collectives: the rank's collectives.
        column: of this rank in ``matched``; -1: it was left out.
        matched: those of all ranks.
        met: when all had come to each.
        bound: ns: of the clocks.
    """
    if column < 0 or not np.isfinite(bound):
        return incomparable_arrivals(collectives, matched.ranks)
    there = matched.rows[column] >= 0
    row = matched.rows[column][there]
    last, late = met.last[row], met.last_column[row]
    if len(one_way := np.flatnonzero(~matched.together[row])):
        last[one_way], late[one_way] = waited_for(
            met.start[row[one_way]], column, met.end[row[one_way], column]
        )
    several = bool(((matched.start[row] != MISSING).sum(1) > 1).any())
    return arrivals_of_differences(
        collectives,
        there,
        last - met.start[row, column],
        met.free[row] - met.last[row],
        late,
        matched.ranks,
        bound,
        several,
    )
