"""A rank's step as a line that is swept: at each moment it computes, moves bytes, waits for a late rank, or stands in a queue.

While any collective in flight has all its ranks and a free slot, bytes move: transfer. Else, while any has all its ranks, it stands in a
queue, behind one that waits. Else the rank waits for whoever is missing. What its own backward covers is hidden. Summing waits over
collectives instead counts the same moment several times.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from feedline.analysis.comm.clocks import Alignment
from feedline.analysis.comm.collectives import PHASES, Collectives
from feedline.analysis.comm.match import MISSING, Matched
from feedline.analysis.comm.operations import SLOTS, operation
from feedline.analysis.timeline import IntArray

PARTS = ("compute", "hidden_transfer", "exposed_transfer", "hidden_wait", "exposed_wait", "queue")
BETWEEN = ("hidden_wait", "exposed_wait", "queue")  # known only by comparison with another rank
BLOCKED = "blocked"  # a stage that a recorder may have: the main thread stands in Work.wait
TAIL = 0.9  # share of the end of a backward in which collectives are in flight, from which on it is taken for waiting and not for computing
BACKWARD = PHASES.index("backward")


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
class Partition:
    """One rank's steps.

    Attributes:
        parts: PARTS -> int64 [steps], ns; they sum to the steps' lengths (Collectives.walls).
        blamed: int64 [steps, ranks], ns: waiting, by the rank that was waited for.
        exposed: (operation, phase in which it was called) -> float64 [steps], ns: exposed_transfer, shared evenly while several move.
        moving: float64 [k]: ns that bytes moved for each entry of the rank's table, shared evenly while several move; nan: end unknown.
        unended: entries whose end nobody could tell: they are in ``compute``.
        met: whether any of its collectives can be compared with another rank's. Else nothing separates waiting from transfer.
    """

    rank: int
    parts: dict[str, IntArray]
    blamed: IntArray
    exposed: dict[tuple[str, str], npt.NDArray[np.float64]]
    moving: npt.NDArray[np.float64]
    unended: int
    met: bool


def meet(matched: Matched, alignment: Alignment) -> Meetings:
    """When everybody was there, and when bytes could move."""
    start, end = alignment.reference(matched.start), alignment.reference(matched.end)
    last = start.max(1, initial=MISSING)
    free = last.copy()
    for number, group in enumerate(matched.groups):
        if group.between_two:
            continue  # messages do not go through the queue of collectives
        rows = np.flatnonzero(matched.group == number)
        for column in np.flatnonzero(matched.member[rows[0]] if len(rows) else []).tolist():
            released = _slot_free(end[rows, column], SLOTS.get(group.backend, 1))
            free[rows] = np.maximum(free[rows], released)
    column = start.argmax(1) if start.shape[1] else np.zeros(len(start), np.int64)
    return Meetings(start, end, last, column, free)


def _slot_free(end: IntArray, slots: int) -> IntArray:
    """For each collective of a group on one rank, in order: since when fewer than ``slots`` of those before it were unfinished."""
    before = np.concatenate([[MISSING], np.maximum.accumulate(end)[:-1]]) if len(end) else end
    shifted = np.concatenate([[MISSING], end[:-1]]) if len(end) else end
    for _ in range(slots - 1):  # the next largest of all earlier ends: what the largest so far pushes out
        pushed = np.minimum(shifted, np.concatenate([[MISSING], before[:-1]]))
        shifted, before = pushed, np.maximum.accumulate(pushed)
    return before


def partition(one: Collectives, column: int, matched: Matched, met: Meetings, bound: float) -> Partition:
    """Sweep one rank's time.

    Args:
        column: of this rank in ``matched``; -1: it was left out, so all its collectives are transfer.
        bound: ns: waiting and queueing shorter than this are not claimed.
    """
    table = one.table
    start, end = table["start"].astype(np.int64), table["end"].astype(np.int64)
    ended = end >= start
    last, free, late = own_times(one, column, matched, met, bound)
    start, end, last, free, late = (values[ended] for values in (start, end, last, free, late))
    backward = computing(one)
    times = [one.steps.ravel(), one.evaluation.ravel(), start, last, free, end, backward.ravel()]
    edges = _distinct(times) if len(one.steps) else np.zeros(0, np.int64)
    length = np.diff(edges)
    moving = _count(edges, free, end)
    kind = _classify(_count(edges, start, end), moving, _count(edges, last, free), _count(edges, *backward.T) > 0)
    step, count = one.step_at(edges[:-1]), len(one.steps)
    inside = step >= 0
    parts = {name: np.bincount(step[pick], length[pick], count).astype(np.int64)
             for number, name in enumerate(PARTS) for pick in [inside & (kind == number)]}  # fmt: skip
    waiting = inside & ((kind == PARTS.index("hidden_wait")) | (kind == PARTS.index("exposed_wait")))
    owner = _oldest(edges, start, end, waiting)
    columns = max(len(matched.ranks), 1)
    known = waiting & (owner >= 0)
    blamed = (
        np.bincount(step[known] * columns + late[owner[known]], length[known], count * columns).astype(np.int64).reshape(count, columns)
    )
    shared = np.concatenate([[0.0], np.cumsum(np.where(moving > 0, length / np.maximum(moving, 1), 0.0))]) if len(edges) else np.zeros(1)
    took = np.full(len(table), np.nan)
    took[ended] = shared[np.searchsorted(edges, end)] - shared[np.searchsorted(edges, free)] if len(edges) else 0.0
    bare = np.where(inside & (kind == PARTS.index("exposed_transfer")), length / np.maximum(moving, 1), 0.0)
    exposed = {
        what: np.bincount(step[inside], (bare * _count(edges, free[mine], end[mine]))[inside], count).astype(np.float64)
        for what, mine in _kinds(one, ended)
    }
    return Partition(one.rank, parts, blamed, exposed, took, int((~ended).sum()), _met(column, matched, bound))


def _met(column: int, matched: Matched, bound: float) -> bool:
    if column < 0 or not np.isfinite(bound):
        return False
    row = matched.rows[column]
    return bool(((matched.start[row[row >= 0]] != MISSING).sum(1) > 1).any())


def _kinds(one: Collectives, chosen: npt.NDArray[np.bool_]) -> Iterator[tuple[tuple[str, str], npt.NDArray[np.bool_]]]:
    """(operation, phase) -> which of the chosen entries of the table are of it."""
    names = np.array([operation(name) for name in one.names] or [""])[one.table["name"][chosen]]
    phases = one.table["phase"][chosen]
    for name in np.unique(names).tolist():
        for phase in np.unique(phases[names == name]).tolist():
            yield (name, PHASES[phase]), (names == name) & (phases == phase)


def moving(matched: Matched, partitions: Sequence[Partition]) -> npt.NDArray[np.float64]:
    """``Partition.moving`` of all ranks beside each other: float64 [m, ranks]; nan also where a rank took no part.

    Args:
        partitions: of the columns of ``matched``, in order.
    """
    took = np.full(matched.start.shape, np.nan)
    for column, part in enumerate(partitions):
        row = matched.rows[column]
        took[row[row >= 0], column] = part.moving[row >= 0]
    return took


def own_times(one: Collectives, column: int, matched: Matched, met: Meetings, bound: float) -> tuple[IntArray, IntArray, IntArray]:
    """For each entry of a rank's table, in own time: the last rank began, bytes could move; and the column of the last rank.

    Args:
        column, bound: as of ``partition``.
    """
    start, end = one.table["start"].astype(np.int64), one.table["end"].astype(np.int64)
    last, free, late = start.copy(), start.copy(), np.zeros(len(start), np.int64)
    if column < 0 or not np.isfinite(bound):
        return last, free, late
    row = matched.rows[column]
    there = row >= 0
    row = row[there]
    here = met.start[row, column]
    behind, stood = met.last[row] - here, met.free[row] - met.last[row]
    whom = met.last_column[row]
    one_way = ~matched.together[row]
    if one_way.any():  # a receiver that comes later than this rank has finished was not waited for
        whom[one_way], began = _waited_for(met, row[one_way], column)
        behind[one_way] = began - here[one_way]
    behind = np.where(behind > bound, behind, 0)
    stood = np.where(stood > bound, stood, 0)
    last[there] = np.minimum(start[there] + behind, np.maximum(end[there], start[there]))
    free[there] = np.minimum(last[there] + stood, np.maximum(end[there], start[there]))
    late[there] = whom
    return last, free, late


def _waited_for(met: Meetings, row: IntArray, column: int) -> tuple[IntArray, IntArray]:
    """The last rank that began before this one was done, and when."""
    end = met.end[row, column]
    before = np.where(met.start[row] <= end[:, None], met.start[row], MISSING)
    before[:, column] = met.start[row, column]
    return before.argmax(1), before.max(1)


def computing(one: Collectives) -> IntArray:
    """The rank's own backwards, without the time in which they only waited. Returns int64 [k, 2], ns, own time.

    DistributedDataParallel waits for its buckets inside backward. Where a recorder saw that (stage ``blocked``), it is taken out; else a
    backward ends with its last bucket if collectives are in flight through the rest of it: the last bucket is full when the last
    gradient is.
    """
    spans = one.stages.get("backward", np.zeros((0, 2), np.int64)).reshape(-1, 2)
    if BLOCKED in one.stages:
        return without(spans, one.stages[BLOCKED].reshape(-1, 2))
    mine = one.table[(one.table["phase"] == BACKWARD) & (one.table["end"] >= one.table["start"])]
    begin, ends = spans[:, 0], spans[:, 1].copy()
    start, done = np.ascontiguousarray(mine["start"]), np.append(mine["end"], MISSING)
    low, high = np.searchsorted(start, begin), np.searchsorted(start, ends)
    some = np.flatnonzero(low < high)
    if len(some):
        low, high, stop = low[some], high[some], ends[some]
        enqueued = start[high - 1]
        latest = np.minimum(np.maximum.reduceat(done, np.stack([low, high], 1).ravel())[::2], stop)
        waits = (stop > enqueued) & (latest - enqueued >= TAIL * (stop - enqueued))
        ends[some] = np.where(waits, enqueued, stop)
    return np.stack([spans[:, 0], ends], 1)


def without(spans: IntArray, holes: IntArray) -> IntArray:
    """Intervals less other intervals. All int64 [k, 2]."""
    edges = np.unique(np.concatenate([spans.ravel(), holes.ravel()]))
    left = (_count(edges, *spans.T) > 0) & (_count(edges, *holes.T) == 0)
    return np.stack([edges[:-1][left], edges[1:][left]], 1) if len(edges) else np.zeros((0, 2), np.int64)


def _count(edges: IntArray, start: IntArray, end: IntArray) -> IntArray:
    """How many intervals cover each piece between two neighboring edges. All their ends are among the edges."""
    if not len(edges):
        return np.zeros(0, np.int64)
    change = np.bincount(np.searchsorted(edges, start), minlength=len(edges)) - np.bincount(
        np.searchsorted(edges, end), minlength=len(edges)
    )
    return np.cumsum(change)[:-1]


def _classify(flying: IntArray, moving: IntArray, queued: IntArray, covered: npt.NDArray[np.bool_]) -> IntArray:
    """Index into PARTS for each piece."""
    compute, hidden_transfer, exposed_transfer, hidden_wait, exposed_wait, queue = range(len(PARTS))
    transfer = np.where(covered, hidden_transfer, exposed_transfer)
    wait = np.where(covered, hidden_wait, exposed_wait)
    return np.where(moving > 0, transfer, np.where(queued > 0, queue, np.where(flying > 0, wait, compute)))


def _oldest(edges: IntArray, start: IntArray, end: IntArray, wanted: npt.NDArray[np.bool_]) -> IntArray:
    """For the wanted pieces, which of the collectives in flight began first; -1 elsewhere."""
    order = np.argsort(start, kind="stable")
    begin, stop = start[order], end[order]
    begin = np.maximum(begin, np.concatenate([begin[:1], np.maximum.accumulate(stop)[:-1]]))
    own = begin < stop  # what an earlier one does not cover already
    begin, stop, order = begin[own], stop[own], order[own]
    if not len(order) or not len(edges):
        return np.full(max(len(edges) - 1, 0), -1, np.int64)
    place = np.searchsorted(begin, edges[:-1], "right") - 1
    held = wanted & (place >= 0) & (edges[:-1] < stop[place])
    return np.where(held, order[place], -1)


def _distinct(times: Sequence[IntArray]) -> IntArray:
    """Each time once, ascending. Sorted runs that follow each other are sorted fastest by merging."""
    ordered = np.sort(np.concatenate(times), kind="stable")
    return ordered[np.append(True, np.diff(ordered) > 0)] if len(ordered) else ordered


def columns(ranks: Sequence[Collectives], matched: Matched) -> dict[int, int]:
    """Rank -> its column; -1: it was left out."""
    place = {rank: column for column, rank in enumerate(matched.ranks)}
    return {one.rank: place.get(one.rank, -1) for one in ranks}
