"""Decides what a full segment keeps: every second of its windows, and what is kept for good.

Each short epoch leaves a rest, which is merged with others where they fill it. It needs numpy,
which segment.py does not: that is imported before the program begins. A segment is full after more
than 100,000 records.
"""

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from feedline.profiler.events import RECORD, Stage
from feedline.profiler.store.layout import FIELDS, STAGES, TOTALS_AT
from feedline.profiler.store.record_columns import RECORD_DTYPE, Records, sums_of

_BETWEEN = Stage.REST, Stage.TAKEN, Stage.WOKEN, Stage.EPOCH  # what rests are merged across
_OPEN = 2  # of the last rests, whose records may still be written
_SLICE = 4096  # records that are copied at once: memory that is copied to may stay
_MOST_STRIDE_MASK = 65535  # as many windows as a record can tell apart
#: Few, and needed to read the rest.
_FOREVER = (
    *(
        Stage.NAME,
        Stage.EPOCH,
        Stage.START,
        Stage.FLOP,
        Stage.GROUP,
        Stage.CLOCK,
        Stage.BEGUN,
        Stage.SUMS,
    ),
    *(Stage.REST, Stage.TAKEN, Stage.WOKEN, Stage.MARKS),
)


class _Merged(NamedTuple):
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


def _merge_rests(records: npt.NDArray[np.void], keep: npt.NDArray[np.bool_]) -> _Merged:
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
        return _Merged(gone, at[:0], np.array(records[:0]))
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
    return _Merged(gone, slots, sums)


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


class _Thinned(NamedTuple):
    """A full segment, and what it keeps.

    Attributes:
        records: [n], all of them, in the segment's memory.
        keep: bool [n], those that it keeps.
        merged: rests that become one; None: none do.
        stride_mask: of the windows that it keeps.
    """

    records: Records
    keep: npt.NDArray[np.bool_]
    merged: _Merged | None
    stride_mask: int

    def kept(self) -> Iterator[bytes]:
        """Yield the records that it keeps, in order, in slices."""
        for part in self._slices():
            rows = np.array(self.records[part])
            if self.merged is not None:
                self.merged.replace(rows, part.start)
            yield rows[self.keep[part]].tobytes()

    def header_after(self, header: bytes) -> bytearray:
        """Return the segment's header once the sums of what it does not keep are in it."""
        after = bytearray(header)
        totals = np.frombuffer(after, np.int64, STAGES * FIELDS, TOTALS_AT)
        # sums of merged ones are kept
        told = ~self.keep if self.merged is None else ~(self.keep | self.merged.gone)
        for part in self._slices():
            records = self.records[part]
            totals += sums_of(records[told[part] & (records["stage"] != 0)]).ravel()
        totals[0] = self.stride_mask
        return after

    def moved(self) -> memoryview:
        """Return the next slot of each record, 32-bit integers; -1: it is not kept."""
        slots = np.cumsum(self.keep, dtype=np.int32) - 1
        return np.where(self.keep, slots, -1).astype(np.int32).data

    def _slices(self) -> Iterator[slice]:
        for begin in range(0, len(self.records), _SLICE):
            yield slice(begin, begin + _SLICE)


def thin(content: memoryview, stride_mask: int, capacity: int) -> _Thinned | None:
    """Discard every second window of a segment, again if that makes no room.

    Where much is kept for good, rests are merged, first without discarding more.

    Args:
        content: all of its records.
        stride_mask: of the windows that it has kept so far.
        capacity: records that it has room for.

    Returns:
        What it keeps; None: nothing more can be discarded.
    """
    records = np.frombuffer(content, RECORD_DTYPE, len(content) // RECORD.size)
    windows, forever = np.array(records["window"]), np.isin(records["stage"], _FOREVER)
    keep = np.ones(len(records), bool)
    merged: _Merged | None = None
    while True:
        if forever.sum() > capacity // 4:
            merged = _merge_rests(records, keep)
            keep &= ~merged.gone
        if keep.sum() <= capacity * 3 // 4:
            return _Thinned(records, keep, merged, stride_mask)
        if stride_mask >= _MOST_STRIDE_MASK:
            return None
        stride_mask = stride_mask * 2 + 1
        keep = (windows & stride_mask == 0) | forever
