"""Makes room in a segment that is full of rests: each short epoch leaves one, which is kept for good.

Rests (taps/recording_schedule.py) with no other record left between them become one. Their steps,
times, batches and samples are added. Readers look for the beginning of the first rest after a step
and for the end of the last one before a step: the first one stays as it is, and the sum of the
others ends where the last of them does.
"""

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from feedline.profiler.events import Stage

_BETWEEN = Stage.REST, Stage.TAKEN, Stage.WOKEN, Stage.EPOCH  # what rests are merged across
_OPEN = 2  # of the last rests, whose records may still be written


class Merged(NamedTuple):
    """Records that take the place of others.

    Attributes:
        gone: bool [n], those that are not needed any more.
        slots: int64 [k], of those that are replaced.
        rows: records [k], by what.
    """

    gone: npt.NDArray[np.bool_]
    slots: npt.NDArray[np.int64]
    rows: npt.NDArray[np.void]

    def replace(self, records: npt.NDArray[np.void], first: int) -> None:
        """Replace those of a segment's records that begin with its slot ``first``."""
        inside = (self.slots >= first) & (self.slots < first + len(records))
        records[self.slots[inside] - first] = self.rows[inside]


def merge_rests(records: npt.NDArray[np.void], keep: npt.NDArray[np.bool_]) -> Merged:
    """Merge the rests of a segment.

    Args:
        records: [n], all of them.
        keep: bool [n], those that are not forgotten.
    """
    stage, start = np.array(records["stage"]), np.array(records["start"])
    gone = np.zeros(len(records), bool)
    at = np.flatnonzero(keep & (stage != 0) & (stage != Stage.NAME))
    at = at[np.argsort(start[at], kind="stable")]
    stage = stage[at]
    stretch = np.cumsum(~np.isin(stage, _BETWEEN))[stage == Stage.REST][:-_OPEN]
    rests = at[stage == Stage.REST][:-_OPEN]
    others = np.flatnonzero(stretch[1:] == stretch[:-1]) + 1  # all but the first of each stretch
    if not len(others):
        return Merged(gone, at[:0], np.array(records[:0]))
    rests, stretch = rests[others], stretch[others]
    _, first, number = np.unique(stretch, return_index=True, return_counts=True)
    sums = _sums(records, rests, first, number)
    sums["start"] += records["wall"][rests[first + number - 1]] - sums["wall"]
    gone[rests] = True
    slots = rests[first + number - 1]

    taken = at[stage == Stage.TAKEN]  # begins with its rest
    rest = np.minimum(np.searchsorted(start[rests], start[taken]), len(rests) - 1)
    taken, rest = taken[own := start[rests[rest]] == start[taken]], rest[own]
    into = np.repeat(np.arange(len(first)), number)[rest]
    source = records["source"][taken].astype(np.int64)
    order = np.lexsort((source, into))
    taken, into, source = taken[order], into[order], source[order]
    if len(taken):
        _, begin, size = np.unique((into << 16) + source, return_index=True, return_counts=True)
        batches = _sums(records, taken, begin, size)
        batches["start"] = sums["start"][into[begin]]
        gone[taken] = True
        slots = np.concatenate([slots, taken[begin + size - 1]])
        sums = np.concatenate([sums, batches])

    woken = at[stage == Stage.WOKEN]  # marks a step that is forgotten
    of = np.searchsorted(start[rests[first]], start[woken], "right") - 1
    gone[woken[(of >= 0) & (start[woken] < start[rests[first + number - 1]][of])]] = True
    gone[slots] = False
    return Merged(gone, slots, sums)


def _sums(
    records: npt.NDArray[np.void],
    slots: npt.NDArray[np.int64],
    first: npt.NDArray[np.int64],
    number: npt.NDArray[np.int64],
) -> npt.NDArray[np.void]:
    """Return the last record of each group of slots, with the sums of the group's."""
    rows = np.array(records[slots[first + number - 1]])
    for name in ("wall", "extra"):
        rows[name] = np.add.reduceat(np.maximum(records[name][slots], 0), first)
    return rows
