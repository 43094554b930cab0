"""Sets of moments and spans of one thread: the one place for the algebra of intervals.

A set is an int64 [k, 2] array of [begin, end) in whole nanoseconds, sorted, disjoint and not
touching, none empty. ``union`` makes one of anything. Spans may nest; ``flatten`` gives each moment
to the innermost.
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

IntArray = npt.NDArray[np.int64]
BoolArray = npt.NDArray[np.bool_]
FloatArray = npt.NDArray[np.float64]
NONE: IntArray = np.zeros((0, 2), np.int64)


def union(start: IntArray, end: IntArray) -> IntArray:
    """Return every moment that lies in one of [start, end).

    Args:
        start, end: int64 [n], ns, in any order, overlapping or not; those with end <= start hold no
            moment.
    """
    some = end > start
    if not some.all():
        start, end = start[some], end[some]
    if not len(start):
        return NONE
    if not (start[1:] >= start[:-1]).all():
        order = np.argsort(start, kind="stable")
        start, end = start[order], end[order]
    reach = np.maximum.accumulate(end)
    last = np.append(start[1:] > reach[:-1], True)
    first = np.append(True, last[:-1])
    return np.stack([start[first], reach[last]], 1)


def joined(*sets: IntArray) -> IntArray:
    """Return every moment of any of these sets."""
    every = np.concatenate([NONE, *sets])
    return union(every[:, 0], every[:, 1])


def common(one: IntArray, other: IntArray) -> IntArray:
    """Return the moments that both sets hold."""
    return _chosen(one, other, np.logical_and)


def without(one: IntArray, other: IntArray) -> IntArray:
    """Return the moments of ``one`` that ``other`` does not hold."""
    return _chosen(one, other, lambda mine, its: mine & ~its)


def clip(intervals: IntArray, begin: int, end: int) -> IntArray:
    """Return the moments of a set from ``begin`` to ``end``."""
    cut = np.clip(intervals, begin, max(begin, end))
    return cut[cut[:, 1] > cut[:, 0]]


def length(intervals: IntArray) -> int:
    """Return the nanoseconds in a set."""
    return int((intervals[:, 1] - intervals[:, 0]).sum())


def covered(intervals: IntArray, begin: IntArray, end: IntArray) -> IntArray:
    """Return the nanoseconds of a set in each window [begin, end).

    Args:
        begin, end: int64 [n], ns; windows may overlap, and end >= begin.

    Returns:
        int64 [n].
    """
    return overlap(begin, end, intervals[:, 0], intervals[:, 1])


def holds(intervals: IntArray, moment: IntArray) -> BoolArray:
    """Return which of these moments, int64 [n], lie in the set."""
    if not len(intervals):
        return np.zeros(len(moment), bool)
    place = np.searchsorted(intervals[:, 0], moment, "right") - 1
    return np.asarray((place >= 0) & (moment < intervals[place, 1]), bool)


def _chosen(
    one: IntArray, other: IntArray, rule: Callable[[BoolArray, BoolArray], BoolArray]
) -> IntArray:
    """Return the pieces between neighboring ends of either set that the rule takes."""
    edges = np.sort(np.concatenate([one.ravel(), other.ravel()]), kind="stable")
    begin, end = edges[:-1], edges[1:]
    taken = rule(holds(one, begin), holds(other, begin))
    return union(begin[taken], end[taken])


def overlap(start: IntArray, end: IntArray, begins: IntArray, ends: IntArray) -> IntArray:
    """Return how much of each interval [start, end) lies in the union of others.

    Args:
        start, end: int64 [n], ns.
        begins, ends: int64 [m], ns, disjoint and sorted.

    Returns:
        int64 [n], ns.
    """
    if not len(begins):
        return np.zeros(len(start), np.int64)
    before = np.concatenate([[0], np.cumsum(ends - begins)])

    def covered(time: IntArray) -> IntArray:
        index = np.searchsorted(begins, time, "right") - 1
        inside = np.where(
            index >= 0,
            np.minimum(time, ends[np.maximum(index, 0)]) - begins[np.maximum(index, 0)],
            0,
        )
        return np.where(index >= 0, before[np.maximum(index, 0)] + inside, 0)

    return np.asarray(covered(end) - covered(start), np.int64)


@dataclass(frozen=True)
class Pieces:
    """Disjoint pieces of a thread's time, in order, each owned by the innermost span.

    Attributes:
        start, end: int64 [n], ns.
        owner: int64 [n], index of the span.
    """

    start: IntArray
    end: IntArray
    owner: IntArray


def flatten(start: IntArray, wall: IntArray) -> Pieces:
    """Cut nested spans into pieces that belong to the innermost span.

    A span that outlasts the one it began in (two clocks were read in between) is cut at its
    parent's end.

    Args:
        start: int64 [n], ns, in any order.
        wall: int64 [n], ns.
    """
    order = np.lexsort((-wall, start))
    begins, ends, owners = [], [], []
    stack: list[tuple[int, int]] = []  # (end, index)
    now = 0

    def until(time: int) -> None:
        nonlocal now
        while stack and stack[-1][0] <= time:
            end, index = stack.pop()
            if end > now:
                begins.append(now)
                ends.append(end)
                owners.append(index)
                now = end
        if stack and time > now:
            begins.append(now)
            ends.append(time)
            owners.append(stack[-1][1])
        now = max(now, time)

    for index, begin, length in zip(order.tolist(), start[order].tolist(), wall[order].tolist()):
        until(begin)
        end = begin + length
        stack.append((min(end, stack[-1][0]) if stack else end, index))
    until(2**62)
    return Pieces(np.array(begins, np.int64), np.array(ends, np.int64), np.array(owners, np.int64))


def parents(start: IntArray, wall: IntArray) -> IntArray:
    """Return the index of the span that each span lies in, or -1.

    Args as for ``flatten``; the innermost of those that hold its start.
    """
    order = np.lexsort((-wall, start))
    found = np.full(len(start), -1, np.int64)
    stack: list[tuple[int, int]] = []
    for index, begin, length in zip(order.tolist(), start[order].tolist(), wall[order].tolist()):
        while stack and stack[-1][0] <= begin:
            stack.pop()
        if stack:
            found[index] = stack[-1][1]
        stack.append((begin + length, index))
    return found


def cut(pieces: Pieces, at: IntArray) -> Pieces:
    """Split pieces at these times.

    Args:
        at: int64 [m], ns, sorted.
    """
    if not len(pieces.start):
        return pieces
    inside = np.searchsorted(pieces.start, at, "right") - 1
    hits = (inside >= 0) & (at > pieces.start[inside]) & (at < pieces.end[inside])
    where, times = inside[hits], at[hits]
    start = np.insert(pieces.start, where + 1, times)
    owner = np.insert(pieces.owner, where + 1, pieces.owner[where])
    end = np.insert(pieces.end, where, times)
    return Pieces(start, end, owner)
