"""What all figures of one report are of: the steps of a trace, or all of it where no steps were found."""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from feedline.analysis.formatting import counted, seconds
from feedline.analysis.intervals import BoolArray, IntArray
from feedline.analysis.traces.columns import Trace
from feedline.analysis.traces.kinds_of_work import extent
from feedline.analysis.traces.steps import Steps


@dataclass(frozen=True)
class Basis:
    """A window of a trace.

    Attributes:
        begin, end: ns since Trace.origin_ns.
        steps: how many it holds; 0: the trace has none, and this is all of it.
    """

    begin: int
    end: int
    steps: int

    @property
    def ns(self) -> int:
        return self.end - self.begin

    @property
    def whole(self) -> str:
        """What shares are of, in words."""
        return "the step" if self.steps else "the trace"

    def says(self, trace_ns: int) -> str:
        """A phrase for the report.

        Args:
            trace_ns: length of the trace.
        """
        if not self.steps:
            return f"the whole trace ({seconds(trace_ns / 1e9)}), in which no steps were found"
        return f"the {counted(self.steps, 'step')} in the trace ({seconds(self.ns / 1e9)} of {seconds(trace_ns / 1e9)})"

    def within(self, events: npt.NDArray[np.void]) -> IntArray:
        """How much of each event, EVENT_DTYPE [n], lies in the window: int64 [n], ns."""
        start, end = events["start"], events["start"] + events["wall"]
        return np.asarray(np.maximum(np.minimum(end, self.end) - np.maximum(start, self.begin), 0), np.int64)

    def began(self, events: npt.NDArray[np.void]) -> BoolArray:
        """Which events, EVENT_DTYPE [n], began in the window: bool [n]."""
        if not self.steps:
            return np.ones(len(events), bool)
        return np.asarray((events["start"] >= self.begin) & (events["start"] < self.end), bool)

    def touches(self, events: npt.NDArray[np.void]) -> BoolArray:
        """Which events, EVENT_DTYPE [n], began in the window or lie partly in it: bool [n]."""
        return np.asarray(self.began(events) | (self.within(events) > 0), bool)


def basis(trace: Trace, steps: Steps) -> Basis:
    """Where the steps begin and end; without any, where the trace does."""
    if len(steps):
        return Basis(int(steps.edges[0]), int(steps.edges[-1]), len(steps))
    return Basis(*extent(trace), 0)
