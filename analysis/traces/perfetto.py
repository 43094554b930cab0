"""Lines of the Trace Event Format that Perfetto reads.

They are tracks of a rank, lanes for events that overlap, events and arrows. Times are microseconds
with three decimals. On one track the outer of two events that begin together comes first.
"""

import json
from collections.abc import Iterator

import numpy as np
import numpy.typing as npt

from feedline.analysis.intervals import IntArray

_MAX_LANES = 32  # tracks that a person still scrolls through
NOWHERE = -1
_FIRST_THREAD = 1  # Perfetto takes thread 0 for the idle one


def assign_lanes(start: IntArray, wall: IntArray) -> npt.NDArray[np.int64]:
    """Give each event the first lane that has room for it.

    It lies beside the others there, or wholly inside or around them.

    Args:
        start: int64 [n], ns, ascending.
        wall: int64 [n], ns, descending where starts are equal.

    Returns:
        int64 [n]: 0 for all where all nest; NOWHERE for what would need more than _MAX_LANES lanes.
    """
    lane_of = np.full(len(start), NOWHERE, np.int64)
    # ends of what is going on, of each lane, the outermost first
    open_until: list[list[int]] = [[]]
    for index, (begin, length) in enumerate(zip(start.tolist(), wall.tolist())):
        end = begin + length
        for lane in range(_MAX_LANES):
            if lane == len(open_until):
                open_until.append([])
            ends = open_until[lane]
            while ends and ends[-1] <= begin:
                ends.pop()
            if not ends or end <= ends[-1]:
                ends.append(end)
                lane_of[index] = lane
                break
    return lane_of


class PerfettoRank:
    """One rank as a process: hands out its tracks in the order in which they are shown.

    Attributes:
        pid: the rank's number.
        lost: events that found no track to nest on.
    """

    def __init__(self, pid: int) -> None:
        self.pid = pid
        self.lost = 0
        self._next = _FIRST_THREAD

    def named(self) -> Iterator[str]:
        """Yield the lines that name the rank."""
        yield _says("process_name", self.pid, 0, f'"name": "rank {self.pid}"')
        yield _says("process_sort_index", self.pid, 0, f'"sort_index": {self.pid}')

    def tracks(self, name: str, count: int = 1) -> tuple[list[int], list[str]]:
        """Make a track, and more below it for what overlaps.

        Returns:
            Their numbers, and the lines that name and order them.
        """
        tids = list(range(self._next, self._next + count))
        self._next += count
        says = []
        for place, tid in enumerate(tids):
            label = (
                name
                if place == 0
                else f"{name} (overlapping)"
                if place == 1
                else f"{name} (overlapping {place})"
            )
            says.append(_says("thread_name", self.pid, tid, f'"name": {json.dumps(label)}'))
            says.append(_says("thread_sort_index", self.pid, tid, f'"sort_index": {tid}'))
        return tids, says

    def arrow_of(self, row: int) -> int:
        """Return a number for the arrow that begins at an event, which no other rank's has."""
        return self.pid << 32 | row


def span_line(what: str, pid: int, tid: int, start: int, wall: int, args: str = "") -> str:
    """Write an event that lasts.

    Args:
        what: members of the object: its name, perhaps its category.
        pid: of its process.
        tid: of its track.
        start: ns.
        wall: ns.
        args: members of its ``args``.
    """
    more = f', "args": {{{args}}}' if args else ""
    return (
        f'{{"ph": "X", {what}, "pid": {pid}, "tid": {tid}, "ts": {_micros(start)}, "dur": '
        f"{_micros(wall)}{more}}}"
    )


def counter_line(name: str, pid: int, at: int, value: float) -> str:
    """Write one value of a number that Perfetto draws as a curve, from ``at``, in ns, on."""
    named = json.dumps(name)
    return (
        f'{{"ph": "C", "name": {named}, "pid": {pid}, "ts": {_micros(at)}, "args": {{{named}: '
        f"{value!r}}}}}"
    )


def arrow_line(phase: str, number: int, pid: int, tid: int, at: int) -> str:
    """Write one end of an arrow: from "s" to "f".

    It ends in the event that was written just before it.
    """
    binds = ', "bp": "e"' if phase == "f" else ""
    place = f'"pid": {pid}, "tid": {tid}, "ts": {_micros(at)}'
    return f'{{"ph": "{phase}", "id": {number}, "name": "launch", "cat": "launch", {place}{binds}}}'


def _says(what: str, pid: int, tid: int, args: str) -> str:
    return f'{{"ph": "M", "name": "{what}", "pid": {pid}, "tid": {tid}, "args": {{{args}}}}}'


def _micros(nanoseconds: int) -> str:
    """Write nanoseconds as microseconds, exactly."""
    return (
        f"{nanoseconds // 1000}.{nanoseconds % 1000:03}"
        if nanoseconds >= 0
        else f"-{_micros(-nanoseconds)}"
    )
