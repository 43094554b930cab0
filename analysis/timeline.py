"""Spans of one thread: which is inside which, and what was going on at each moment."""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

IntArray = npt.NDArray[np.int64]


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

    A span that outlasts the one it began in (two clocks were read in between) is cut at its parent's end.

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
    """Index of the span that each span lies in, or -1. Args as for ``flatten``; the innermost of those that hold its start."""
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


def within(times: IntArray, intervals: IntArray) -> npt.NDArray[np.bool_]:
    """bool [n]: whether each time lies in one of the intervals.

    Args:
        times: int64 [n], ns.
        intervals: int64 [m, 2], ns: begin and end, disjoint and sorted.
    """
    index = np.searchsorted(intervals[:, 0], times, "right") - 1
    return (index >= 0) & (times < np.append(intervals[:, 1], 0)[index])


def overlap(start: IntArray, end: IntArray, begins: IntArray, ends: IntArray) -> IntArray:
    """How much of each interval [start, end) lies in the union of others.

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
        inside = np.where(index >= 0, np.minimum(time, ends[np.maximum(index, 0)]) - begins[np.maximum(index, 0)], 0)
        return np.where(index >= 0, before[np.maximum(index, 0)] + inside, 0)

    return np.asarray(covered(end) - covered(start), np.int64)
