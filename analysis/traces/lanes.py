"""Tracks for events that overlap: Perfetto drops what does not nest in the events around it on one track."""

import numpy as np
import numpy.typing as npt

from feedline.analysis.intervals import IntArray

MOST = 32  # tracks that a person still scrolls through
NOWHERE = -1


def lanes(start: IntArray, wall: IntArray) -> npt.NDArray[np.int64]:
    """Give each event the first lane in which it lies beside the others or wholly inside or around them.

    Args:
        start, wall: int64 [n], ns, sorted by (start, -wall).

    Returns:
        int64 [n]: 0 for all where all nest; NOWHERE for what would need more than MOST lanes.
    """
    found = np.full(len(start), NOWHERE, np.int64)
    open_until: list[list[int]] = [[]]  # ends of what is going on, of each lane, the outermost first
    for index, (begin, length) in enumerate(zip(start.tolist(), wall.tolist())):
        end = begin + length
        for lane in range(MOST):
            if lane == len(open_until):
                open_until.append([])
            ends = open_until[lane]
            while ends and ends[-1] <= begin:
                ends.pop()
            if not ends or end <= ends[-1]:
                ends.append(end)
                found[index] = lane
                break
    return found
