"""Decides what a full segment keeps: every second of its windows, and what is kept for good.

It needs numpy, which segment.py does not: that is imported before the program begins. A segment is
full after more than 100,000 records.
"""

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from feedline.profiler.events import RECORD, Stage
from feedline.profiler.store.merged_rests import Merged, merge_rests
from feedline.profiler.store.record_columns import RECORD_DTYPE, Records, sums_of
from feedline.profiler.store.segment_format import FIELDS, STAGES, TOTALS_AT

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


class Thinned(NamedTuple):
    """A full segment, and what it keeps.

    Attributes:
        records: [n], all of them, in the segment's memory.
        keep: bool [n], those that it keeps.
        merged: rests that become one; None: none do.
        stride_mask: of the windows that it keeps.
    """

    records: Records
    keep: npt.NDArray[np.bool_]
    merged: Merged | None
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


def thin(content: memoryview, stride_mask: int, capacity: int) -> Thinned | None:
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
    merged: Merged | None = None
    while True:
        if forever.sum() > capacity // 4:
            merged = merge_rests(records, keep)
            keep &= ~merged.gone
        if keep.sum() <= capacity * 3 // 4:
            return Thinned(records, keep, merged, stride_mask)
        if stride_mask >= _MOST_STRIDE_MASK:
            return None
        stride_mask = stride_mask * 2 + 1
        keep = (windows & stride_mask == 0) | forever
