"""Whether memory was full, and whose: that of a control group, or the machine's.

It is full where 90 % of it are in use: the next piece of memory may be the last, and what is left
holds files and the kernel's own.
"""

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from feedline.analysis.intervals import BoolArray, FloatArray
from feedline.analysis.measure.rank_gauges import sampled_gauges, series
from feedline.analysis.measure.rank_metrics import RankMetrics

_FULL = 0.9
_AS_MACHINE = 0.95  # of the machine's memory: it is full before a group that may use so much
_OFTEN = 0.25  # of the readings while steps ran: caches may have filled it only by then
_GREW = 1.02  # times what was in use before: less is noise


class FullMemory(NamedTuple):
    """Memory that was full at the last reading.

    Attributes:
        used_bytes: what was in use.
        limit_bytes: what there is, or what the control group may use.
        of_machine: it is the machine's, not that of a control group.
    """

    used_bytes: float
    limit_bytes: float
    of_machine: bool


@dataclass(frozen=True)
class _Memory:
    """What was in use of one memory at each reading, at least one.

    Attributes:
        at, used: of the readings, ns and bytes, float64 [n].
        limit: bytes, at the last of them.
        of_machine: as in FullMemory.
    """

    at: FloatArray
    used: FloatArray
    limit: float
    of_machine: bool

    def full(self) -> BoolArray:
        """Return at which readings it was full, bool [n]."""
        return self.used >= _FULL * self.limit

    def grew_since(self, begin: int) -> bool:
        """Return whether more was in use at the last reading than at a time, ns."""
        before = max(int(np.searchsorted(self.at, begin, "right")) - 1, 0)
        return bool(self.used[-1] > _GREW * self.used[before])

    def full_between(self, begin: int, end: int) -> bool:
        """Return whether it was full often between two times, ns, or at the last reading there."""
        full = self.full()[self._between(begin, end)]
        return len(full) > 0 and bool(full[-1] or full.mean() >= _OFTEN)

    def room_between(self, begin: int, end: int) -> float:
        """Return what was free at least between two times, ns, in bytes."""
        return self.limit - float(self.used[self._between(begin, end)].max(initial=0.0))

    def _between(self, begin: int, end: int) -> BoolArray:
        return np.asarray((self.at >= begin) & (self.at <= end))


def filled_since(rank: RankMetrics, begin: int = 0) -> FullMemory | None:
    """Return the memory that filled since a time, and was full at a rank's last reading.

    Of two, the fuller one. A control group or a shared machine that is nearly full all the time is
    no reason why a process ended.

    Args:
        rank: whose gauges are read.
        begin: ns; before the first reading, it filled since that.
    """
    full = [memory for memory in _memories(rank) if memory.full()[-1] and memory.grew_since(begin)]
    ends = [FullMemory(float(one.used[-1]), one.limit, one.of_machine) for one in full]
    return max(ends, key=lambda end: end.used_bytes / end.limit_bytes, default=None)


def full_limit(rank: RankMetrics) -> float | None:
    """Return the memory limit of a rank's control group, bytes, if it was full while steps ran.

    None: there was room, no limit, or the machine was full: a higher limit gives nothing then. A
    tenth of a large machine is free for a small group, however full that is called.
    """
    if rank.steps is None or rank.first >= len(rank.steps.wall):
        return None
    begin, end = int(rank.steps.start[rank.first]), int(rank.steps.boundaries.end[-1])
    full = {one.of_machine: one for one in _memories(rank) if one.full_between(begin, end)}
    group, machine = full.get(False), full.get(True)
    if group is None:
        return None
    if machine is not None and machine.room_between(begin, end) < group.limit:
        return None
    return group.limit


def _memories(rank: RankMetrics) -> list[_Memory]:
    """Return what a rank's memory is limited by: the machine's, then its control group's."""
    gauges = sampled_gauges(rank.rank)
    found = []
    at, used = series(gauges, "memory/used")
    _, available = series(gauges, "memory/available")
    whole = float(used[-1] + available[-1]) if len(used) and len(available) else 0.0
    if whole > 0:
        found.append(_Memory(at, used, whole, of_machine=True))
    at, used = series(gauges, "cgroup/memory")
    _, limits = series(gauges, "cgroup/memory_limit")
    limit = float(limits[-1]) if len(limits) else 0.0
    if len(used) and limit > 0 and (whole <= 0 or limit < _AS_MACHINE * whole):
        found.append(_Memory(at, used, limit, of_machine=False))
    return found
