"""Which event called which on one thread, without a loop over events."""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from feedline.analysis.intervals import IntArray, parents

_ROUNDS = 8  # of cutting what outlasts its caller; clocks that are read one after another need one or two


@dataclass(frozen=True, eq=False)
class Nest:
    """Events of one thread as a tree, in the order in which they began: what an event called follows it at once.

    Attributes:
        parent: int64 [n]; -1: it has no caller.
        wall: int64 [n], ns, cut where it outlasted its caller.
        after: int64 [n]: the first event that it did not call, directly or through others.
        levels: rows of each depth, the outermost first.
    """

    parent: IntArray
    wall: IntArray
    after: IntArray
    levels: list[IntArray]

    @property
    def own(self) -> IntArray:
        """int64 [n], ns: without those it called."""
        called = np.bincount(self.parent[self.parent >= 0], self.wall[self.parent >= 0], len(self.parent))
        return np.maximum(self.wall - called.astype(np.int64), 0)

    def total(self, of_each: IntArray) -> IntArray:
        """Sums, int64 [n], over each event and all that it called."""
        before = np.append(0, np.cumsum(of_each))
        return np.asarray(before[self.after] - before[:-1], np.int64)

    def inherited(self, value: IntArray) -> IntArray:
        """int64 [n]: the event's own value, or that of its nearest caller that has one; -1: none has."""
        found = value.copy()
        for rows in self.levels[1:]:
            found[rows] = np.where(value[rows] >= 0, value[rows], found[self.parent[rows]])
        return found


def nest(start: IntArray, wall: IntArray) -> Nest:
    """Make the tree.

    Args:
        start, wall: int64 [n], ns, sorted by (start, -wall).
    """
    begin = 2 * start  # an event of no length lasts half a nanosecond, so that it lies in whatever goes on
    end = begin + np.maximum(2 * wall, 1)
    for _ in range(_ROUNDS):
        levels = list(_levels(begin, end))
        parent = _parents(levels, len(start))
        cut = _cut(levels, parent, begin, end)
        if (cut == end).all():
            break
        end = cut
    else:  # a trace that makes no sense: linear, but event by event
        parent = parents(start, np.maximum(wall, 1))
        levels = list(_by_depth(_depths(parent)))
        end = _cut(levels, parent, begin, end)
    return Nest(parent, (end - begin) // 2, np.searchsorted(begin, end, "left").astype(np.int64), levels)


def _levels(begin: IntArray, end: IntArray) -> Iterator[IntArray]:
    depth = np.arange(len(begin)) - np.searchsorted(np.sort(end, kind="stable"), begin, "right")
    return _by_depth(depth)


def _by_depth(depth: IntArray) -> Iterator[IntArray]:
    order = np.argsort(depth, kind="stable")
    return iter(np.split(order, np.cumsum(np.bincount(depth))[:-1])) if len(depth) else iter(())


def _parents(levels: list[IntArray], count: int) -> IntArray:
    parent = np.full(count, -1, np.int64)
    for above, rows in zip(levels, levels[1:]):
        parent[rows] = above[np.searchsorted(above, rows) - 1]
    return parent


def _cut(levels: list[IntArray], parent: IntArray, begin: IntArray, end: IntArray) -> IntArray:
    """Ends that are no later than that of the caller, if it was still there."""
    cut = end.copy()
    for rows in levels[1:]:
        callers = cut[parent[rows]]
        cut[rows] = np.where(callers > begin[rows], np.minimum(cut[rows], callers), cut[rows])
    return cut


def _depths(parent: npt.NDArray[np.int64]) -> IntArray:
    depth = np.zeros(len(parent), np.int64)
    for row, above in enumerate(parent.tolist()):
        depth[row] = depth[above] + 1 if above >= 0 else 0
    return depth
