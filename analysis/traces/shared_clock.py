"""A trace of torch.profiler on the clock that feedline's own records have.

Kineto's times are Unix time, worked out from the processor's counter; feedline's are CLOCK_MONOTONIC. feedline's window puts marks into the
trace whose names hold CLOCK_MONOTONIC as it was read just before them (profiler/taps/kineto_window.py). So mark i begins after its own
reading and has ended before that of mark i + 1, and what is added to Kineto's time lies between

    reading i - start i  <=  offset  <=  reading i+1 - end i

If one offset satisfies all pairs of marks, half the room that they leave is the error that cannot be excluded, for clocks that run alike as
these do. If none does, the clocks parted on the way (somebody set the time): then each burst of marks gives an offset of its own, and the
bound covers what lies between.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from feedline.analysis.intervals import IntArray
from feedline.analysis.traces.collectives import RankClock
from feedline.analysis.traces.columns import Trace
from feedline.profiler.clock import MARK

_BURST_NS = 1_000_000  # marks farther apart belong to different bursts
#: The run's own readings of both clocks were measured 2 us off the marks; but one taken while another process had the CPU is off by a
#: scheduler's slice, which this is some of.
READINGS_NS = 10_000_000


@dataclass(frozen=True)
class SharedClock:
    """How to put a trace's times on feedline's clock.

    Attributes:
        clock: from the trace's time (Trace.origin_ns + start) to CLOCK_MONOTONIC of the host; its bound in ns.
        marks: how many marks say so; 0: the run's readings of both clocks at its begin and end.
    """

    clock: RankClock
    marks: int

    def says(self) -> str:
        """For a reader of the report: how well, and by what."""
        bound = f"{self.clock.bound / 1000:.1f} µs" if self.clock.bound < 1e6 else f"{self.clock.bound / 1e6:.1f} ms"
        if self.marks:
            return f"within {bound} ({self.marks} clock marks in the trace)"
        return f"within about {bound} (from the run's readings of both clocks: the trace has no clock marks)"


def marks_in(trace: Trace) -> tuple[IntArray, IntArray]:
    """The marks of feedline's clock.

    Returns:
        Their rows in ``Trace.events``, in order of time, and what each says: CLOCK_MONOTONIC, ns. Both int64 [n].
    """
    said = np.full(max(len(trace.names), 1), -1, np.int64)
    for number, name in enumerate(trace.names):
        digits = name.removeprefix(MARK)
        if digits != name and digits.isascii() and digits.isdigit() and len(digits) < 19:
            said[number] = int(digits)
    reading = said[trace.events["name"]]
    rows = np.flatnonzero(reading >= 0)
    rows = rows[np.argsort(reading[rows], kind="stable")]
    return rows, reading[rows]


def shared_clock(trace: Trace, anchors: Sequence[dict[str, int]]) -> SharedClock | None:
    """Find it from the marks, or else from the manifest's anchors (clock.anchor()). None: neither is there."""
    rows, reading = marks_in(trace)
    if len(rows) > 1:
        start = trace.origin_ns + trace.events["start"][rows]
        return SharedClock(_by_marks(reading, start, start + trace.events["wall"][rows]), len(rows))
    if not trace.origin_ns or not anchors:
        return None
    at = np.array([anchor["time_ns"] for anchor in anchors], np.int64)
    offset = np.array([anchor["perf_counter_ns"] for anchor in anchors], np.int64) - at
    order = np.argsort(at, kind="stable")
    return SharedClock(RankClock(at[order], offset[order], float(np.ptp(offset)) + READINGS_NS), 0)


def _by_marks(reading: IntArray, start: IntArray, end: IntArray) -> RankClock:
    least, most = (reading - start)[:-1], reading[1:] - end[:-1]
    if least.max() <= most.min():
        return RankClock(start[:1], _middle(least.max(), most.min()), float(most.min() - least.max()) / 2)
    close = np.diff(reading) <= _BURST_NS
    close |= not close.any()
    edges = np.flatnonzero(np.append(True, np.diff(np.cumsum(~close)[close]) > 0))  # first pairs of bursts
    least, most, at = least[close], most[close], start[:-1][close]
    offset = _middle(np.maximum.reduceat(least, edges), np.minimum.reduceat(most, edges))
    clock = RankClock(at[edges], offset, 0.0)
    shown = clock.to_reference(at) - at
    room = np.maximum(np.abs(shown - least), np.abs(most - shown)).max()
    return replace(clock, bound=float(room + np.abs(np.diff(offset)).max(initial=0)))


def _middle(low: IntArray, high: IntArray) -> IntArray:
    return np.atleast_1d(low + (high - low) // 2).astype(np.int64)
