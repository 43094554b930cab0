"""When something happened: the columns ``rank``, ``time`` and ``start_s`` that all frames of records share."""

from dataclasses import dataclass

import numpy as np

from feedline.analysis.intervals import IntArray
from feedline.analysis.report.frames.table import NO_TIME, Column
from feedline.profiler.store.run_folder import Rank

RANK = Column("rank", "integer", "", 'Number of the rank. Write `frame["rank"]`: `frame.rank` is a method of pandas')
TIME = Column("time", "time", "", "Date and time (UTC) of its beginning; for gauges, of the reading", "the run's manifest has no date")
START = Column(
    "start_s",
    "number",
    "s",
    "The same moment, since the recording of this rank began; of several trainings in a process, since this one began",
)


@dataclass(frozen=True)
class Moments:
    """Turns a rank's own times, ns, into those of frames.

    Attributes:
        rank: its number.
        origin: own time at which its recording began.
        begun: the same by the calendar, ns since 1970; None: unknown.
    """

    rank: int
    origin: int
    begun: int | None

    @classmethod
    def of(cls, rank: Rank) -> "Moments":
        anchors = rank.manifest.anchors
        if anchors:
            return cls(rank.number, anchors[0]["perf_counter_ns"], anchors[0]["time_ns"])
        first = min((process.records["start"].min() for process in rank.processes if len(process.records)), default=0)
        return cls(rank.number, int(first), None)

    def columns(self, at: IntArray) -> dict[str, np.ndarray]:
        """``rank``, ``time`` and ``start_s`` of these moments.

        Args:
            at: int64 [n], own time, ns.
        """
        since = at - self.origin
        time = np.full(len(at), NO_TIME) if self.begun is None else since + self.begun
        return {"rank": np.full(len(at), self.rank), "time": time, "start_s": since / 1e9}
