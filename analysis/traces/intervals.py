"""Sets of moments: intervals in whole nanoseconds, and what two of them have in common.

A set is an int64 [k, 2] array of [begin, end), sorted, disjoint and not touching, none empty. ``union`` makes one of anything.
"""

from collections.abc import Callable

import numpy as np
import numpy.typing as npt

from feedline.analysis.timeline import IntArray, overlap

BoolArray = npt.NDArray[np.bool_]
NONE: IntArray = np.zeros((0, 2), np.int64)


def union(start: IntArray, end: IntArray) -> IntArray:
    """Every moment that lies in one of [start, end).

    Args:
        start, end: int64 [n], ns, in any order, overlapping or not; those with end <= start hold no moment.
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
    """Every moment of any of these sets."""
    every = np.concatenate([NONE, *sets])
    return union(every[:, 0], every[:, 1])


def common(one: IntArray, other: IntArray) -> IntArray:
    """The moments that both sets hold."""
    return _chosen(one, other, np.logical_and)


def without(one: IntArray, other: IntArray) -> IntArray:
    """The moments of ``one`` that ``other`` does not hold."""
    return _chosen(one, other, lambda mine, its: mine & ~its)


def clip(intervals: IntArray, begin: int, end: int) -> IntArray:
    """The moments of a set from ``begin`` to ``end``."""
    cut = np.clip(intervals, begin, max(begin, end))
    return cut[cut[:, 1] > cut[:, 0]]


def length(intervals: IntArray) -> int:
    """Nanoseconds in a set."""
    return int((intervals[:, 1] - intervals[:, 0]).sum())


def covered(intervals: IntArray, begin: IntArray, end: IntArray) -> IntArray:
    """Nanoseconds of a set in each window [begin, end). Returns int64 [n].

    Args:
        begin, end: int64 [n], ns; windows may overlap, and end >= begin.
    """
    return overlap(begin, end, intervals[:, 0], intervals[:, 1])


def holds(intervals: IntArray, moment: IntArray) -> BoolArray:
    """Which of these moments, int64 [n], lie in the set."""
    if not len(intervals):
        return np.zeros(len(moment), bool)
    place = np.searchsorted(intervals[:, 0], moment, "right") - 1
    return np.asarray((place >= 0) & (moment < intervals[place, 1]), bool)


def _chosen(one: IntArray, other: IntArray, rule: Callable[[BoolArray, BoolArray], BoolArray]) -> IntArray:
    """The pieces between neighboring ends of either set that the rule takes."""
    edges = np.sort(np.concatenate([one.ravel(), other.ravel()]), kind="stable")
    begin, end = edges[:-1], edges[1:]
    taken = rule(holds(one, begin), holds(other, begin))
    return union(begin[taken], end[taken])
