"""Rows of events as they come, and in their order."""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from feedline.analysis.traces.columns import EVENT_DTYPE

Rows = npt.NDArray[np.void]
_ORDER = ("start", "wall", "track", "name", "kind", "correlation", "nbytes", "shape", "collective")


class Growing:
    """An array that grows in place: it is never held twice, as joining parts would."""

    def __init__(self) -> None:
        self.rows: Rows = np.empty(0, EVENT_DTYPE)

    def more(self, count: int) -> Rows:
        """New rows, to be filled before the next call."""
        before = len(self.rows)
        self.rows.resize(before + count, refcheck=False)  # realloc, which moves pages and not bytes on Linux
        return self.rows[before:]


def sort(rows: Rows) -> None:
    """Order rows by (start, -wall, track, name) and then by all else, in place, one column at a time."""
    order = np.argsort(rows["start"])
    start = rows["start"][order]
    tied = np.zeros(len(rows) + 1, bool)  # a row with the one before it
    tied[1:-1] = start[1:] == start[:-1]
    del start
    for name in _ORDER[1:]:
        places = np.flatnonzero(tied[:-1] | tied[1:])
        if not len(places):
            break
        keys = rows[name][order[places]]
        group = np.cumsum(~tied[:-1])[places]
        moved = np.lexsort((-keys if name == "wall" else keys, group))
        order[places] = order[places[moved]]
        keys = keys[moved]
        tied[places[1:]] &= keys[1:] == keys[:-1]
    for name in EVENT_DTYPE.names or ():
        rows[name] = rows[name][order]


def canonical(column: npt.NDArray[np.int32], values: Sequence[Any], key: Callable[[Any], Any]) -> list[Any]:
    """Leave out values that no row refers to, order the others, and renumber the column in place; -1 stays.

    What a trace holds then does not depend on the order of its file.
    """
    used = np.zeros(len(values) + 1, bool)
    used[column] = True  # -1 is the last
    places = np.flatnonzero(used[:-1]).tolist()
    kept = sorted({values[number] for number in places}, key=key)
    numbers = {value: number for number, value in enumerate(kept)}
    new = np.full(len(values) + 1, -1, np.int32)
    for number in places:
        new[number] = numbers[values[number]]
    column[:] = new[column]
    return kept
