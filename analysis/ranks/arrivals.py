"""When all ranks had come to a collective: from then on its bytes move; until then those that are there wait for the last one.

In most operations no rank is done before all have begun. In a broadcast, a reduce or a message between two ranks some can be: NCCL's
root leaves what fits into the buffers of its receivers and goes on, gloo's waits until each of them has asked for its part. How long a rank
waited is seen from its own end: it did not wait for a rank that began after that.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from feedline.analysis.intervals import IntArray
from feedline.analysis.ranks.clocks import Alignment
from feedline.analysis.ranks.match import MISSING, BoolArray, CollectiveTable
from feedline.analysis.traces.collective_operations import SLOTS
from feedline.analysis.traces.collectives import Collectives


@dataclass(frozen=True)
class Meetings:
    """When the ranks of each collective came together, on the reference clock.

    Attributes:
        start, end: int64 [m, ranks], ns; MISSING where there is none.
        last: int64 [m]: the last known rank began.
        last_column: int64 [m]: which one that was.
        free: int64 [m]: all ranks had begun and had a slot free: bytes could move.
    """

    start: IntArray
    end: IntArray
    last: IntArray
    last_column: IntArray
    free: IntArray


@dataclass(frozen=True)
class Arrivals:
    """When the others came to the collectives of one rank: int64 [n] each, one entry for each of its table's, in its own time.

    Attributes:
        last: ns: the last rank that it had to wait for began; its own start where it waited for none. Never after its end.
        free: ns: bytes could move.
        late: which rank that was: index into ``ranks``.
        ranks: numbers of ranks.
        met: whether any of its collectives can be compared with another rank's. Else nothing separates waiting from transfer.
    """

    last: IntArray
    free: IntArray
    late: IntArray
    ranks: Sequence[int]
    met: bool


def meet(matched: CollectiveTable, alignment: Alignment) -> Meetings:
    """When all ranks had come to each collective, and when its bytes could move."""
    start, end = alignment.reference(matched.start), alignment.reference(matched.end)
    last = start.max(1, initial=MISSING)
    free = last.copy()
    for number, group in enumerate(matched.groups):
        if group.between_two:
            continue  # messages do not go through the queue of collectives
        rows = np.flatnonzero(matched.group == number)
        for column in np.flatnonzero(matched.member[rows[0]] if len(rows) else []).tolist():
            free[rows] = np.maximum(free[rows], slot_free(end[rows, column], group.backend))
    column = start.argmax(1) if start.shape[1] else np.zeros(len(start), np.int64)
    return Meetings(start, end, last, column, free)


def slot_free(end: IntArray, backend: str) -> IntArray:
    """For each collective of a group on one rank, in order: since when one of the backend's slots was free of those before it."""
    before = np.concatenate([[MISSING], np.maximum.accumulate(end)[:-1]]) if len(end) else end
    shifted = np.concatenate([[MISSING], end[:-1]]) if len(end) else end
    for _ in range(SLOTS.get(backend, 1) - 1):  # the next largest of all earlier ends: what the largest so far pushes out
        pushed = np.minimum(shifted, np.concatenate([[MISSING], before[:-1]]))
        shifted, before = pushed, np.maximum.accumulate(pushed)
    return before


def of_matched(one: Collectives, column: int, matched: CollectiveTable, met: Meetings, bound: float) -> Arrivals:
    """Of one of several ranks that were matched.

    Args:
        column: of this rank in ``matched``; -1: it was left out.
        bound: ns: of the clocks.
    """
    if column < 0 or not np.isfinite(bound):
        return incomparable(one, matched.ranks)
    there = matched.rows[column] >= 0
    row = matched.rows[column][there]
    last, late = met.last[row], met.last_column[row]
    if len(one_way := np.flatnonzero(~matched.together[row])):
        last[one_way], late[one_way] = waited_for(met.start[row[one_way]], column, met.end[row[one_way], column])
    several = bool(((matched.start[row] != MISSING).sum(1) > 1).any())
    return arrived(one, there, last - met.start[row, column], met.free[row] - met.last[row], late, matched.ranks, bound, several)


def waited_for(start: IntArray, own: int, end: IntArray) -> tuple[IntArray, IntArray]:
    """Where some ranks can be done before others have begun: the last to begin of those that a rank can have waited for.

    Args:
        start: int64 [n, k], ns: begins of ranks, the rank's own in column ``own``; MISSING where there is none.
        end: int64 [n], ns: it was done.

    Returns:
        int64 [n], ns: when it began; int64 [n]: its column.
    """
    known = np.where(start <= np.maximum(end, start[:, own])[:, None], start, MISSING)
    return known.max(1), known.argmax(1)


def arrived(
    one: Collectives, there: BoolArray, behind: IntArray, queued: IntArray, late: IntArray, ranks: Sequence[int], bound: float, met: bool
) -> Arrivals:
    """Of a rank, from differences on the reference clock, which its own clock shows as well.

    Args:
        there: bool [n]: the entries of its table that were matched; the others waited for no rank. ``behind``, ``queued`` and ``late`` have
            one entry for each.
        behind: ns from its start until the last rank's.
        queued: ns from then on until a slot was free.
        bound: ns: waiting and queueing shorter than this are not claimed.
    """
    start = one.table["start"].astype(np.int64)
    done = np.maximum(one.table["end"].astype(np.int64), start)[there]
    last, free, whom = start.copy(), start.copy(), np.zeros(len(start), np.int64)
    last[there] = np.minimum(start[there] + np.where(behind > bound, behind, 0), done)
    free[there] = np.minimum(last[there] + np.where(queued > bound, queued, 0), done)
    whom[there] = late
    return Arrivals(last, free, whom, ranks, met)


def incomparable(one: Collectives, ranks: Sequence[int]) -> Arrivals:
    """Of a rank that cannot be compared with others: all of its collectives are transfer."""
    nothing = np.zeros(0, np.int64)
    return arrived(one, np.zeros(len(one.table), bool), nothing, nothing, nothing, ranks, 0.0, False)
