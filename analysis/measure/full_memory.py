"""Whether memory was full, and whose: a control group's or the machine's; and who was killed for it.

It is full where 90 % of it are in use: the next piece of memory may be the last, and what is left
holds files and the kernel's own.
"""

import os
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np

from feedline.analysis.intervals import BoolArray, FloatArray
from feedline.analysis.measure.batch_making import pids_in_file
from feedline.analysis.measure.memory import slope
from feedline.analysis.measure.model import KilledWorker
from feedline.analysis.measure.rank_metrics import RankMetrics
from feedline.profiler.errors import FeedlineError
from feedline.profiler.events import Stage
from feedline.profiler.samplers.gauge_reader import Gauges, read_gauges
from feedline.profiler.store.layout import GAUGES
from feedline.profiler.store.record_columns import last_sign
from feedline.profiler.store.run_folder import Rank
from feedline.profiler.store.segment_reader import Process

_FULL = 0.9
_AS_MACHINE = 0.95  # of the machine's memory: it is full before a group that may use so much
_OFTEN = 0.25  # of the readings while steps ran: caches may have filled it only by then
_GREW = 1.02  # times what was in use before: less is noise
#: Less is noise: of bytes, and of what it had at first.
_LEAST_BYTES, _LEAST_SHARE = 16e6, 0.05
_FEWEST = 3  # readings that show growth
_TELLING = 2  # batches: only then, growth for one of them is not what is kept of each sample


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
    gauges = _sampled_gauges(rank.rank)
    found = []
    at, used = _series(gauges, "memory/used")
    _, available = _series(gauges, "memory/available")
    whole = float(used[-1] + available[-1]) if len(used) and len(available) else 0.0
    if whole > 0:
        found.append(_Memory(at, used, whole, of_machine=True))
    at, used = _series(gauges, "cgroup/memory")
    _, limits = _series(gauges, "cgroup/memory_limit")
    limit = float(limits[-1]) if len(limits) else 0.0
    if len(used) and limit > 0 and (whole <= 0 or limit < _AS_MACHINE * whole):
        found.append(_Memory(at, used, limit, of_machine=False))
    return found


def killed_worker(rank: RankMetrics) -> KilledWorker | None:
    """Return the worker whose end was that of a rank's training; None: there was none."""
    told = rank.rank.manifest.killed
    if not told:
        return None
    pid, limit = told.get("pid", 0), told.get("limit_bytes")
    kills, of_machine, hits = (told.get(name) for name in ("kills", "machine_kills", "limit_hits"))
    counted = of_machine if kills is None else kills
    process = next((one for one in rank.workers if pid in pids_in_file(one)), None)
    return replace(
        _seen(rank, process, pid) if process is not None else KilledWorker(None, 0),
        for_memory=None if counted is None else counted > 0,
        limit_bytes=None if limit is None else float(limit),
        limit_reached=None if hits is None else hits > 0,
    )


def _seen(rank: RankMetrics, process: Process, pid: int) -> KilledWorker:
    """Return what is known of its memory, and when it was seen last."""
    loader, worker = int(str(process.header["loader"])), int(str(process.header["worker"]))
    begun, ready, last = _life(process, pid)
    anchors, gauges = rank.rank.manifest.anchors, _sampled_gauges(rank.rank)
    origin = anchors[0]["perf_counter_ns"] if anchors else 0
    seen = KilledWorker(worker, loader, (last - origin) / 1e9)
    name = f"memory/loader{loader}-worker"
    at, size = _series(gauges, f"{name}{worker}", begun)
    if not len(at):
        return seen
    names = {known for known, _ in gauges.names if known.startswith(name)}
    sizes = [values[-1] for one in names if len(values := _series(gauges, one, begun)[1])]
    # a spawned worker imports torch before it can work
    able = max(int(np.searchsorted(at, ready, "right")) - 1, 0)
    at, size = at[able:], size[able:]
    grown = float(size[-1] - size[0])
    grew = len(at) >= _FEWEST and grown > max(_LEAST_BYTES, _LEAST_SHARE * float(size[0]))
    ends = _batch_ends(process, begun)
    first, batch_bytes = (
        _of_one_batch(at, size, ends) if grew and ends is not None else (False, 0.0)
    )
    of_one = batch_bytes > grown / 2
    return replace(
        seen,
        at_s=(max(float(at[-1]), last) - origin) / 1e9,
        size_bytes=float(size[-1]),
        grown_bytes=grown,
        grown_s=float(at[-1] - at[0]) / 1e9,
        per_second_bytes=slope(at / 1e9, size) if grew and not of_one else None,
        batch_bytes=batch_bytes if of_one else None,
        first_batch=of_one and first,
        kept_perhaps=of_one and ends is not None and len(ends) < _TELLING,
        together_bytes=float(sum(sizes)),
        workers=len(sizes),
    )


def _life(process: Process, pid: int) -> tuple[int, int, int]:
    """Return when a worker began, when it could work, and when its last record ended, ns."""
    starts = process.view(Stage.START)
    own = starts[starts["pid"] == pid]
    begun, ready = 0, 0
    if len(own):
        latest = own[np.argmax(own["start"])]
        begun, ready = int(latest["start"]), int(latest["start"] + latest["wall"])
    return begun, ready, last_sign(process.records) or begun


def _batch_ends(process: Process, begun: int) -> FloatArray | None:
    """Return when the batches of a worker were done that began at this time, ns.

    None: not all of them were kept.
    """
    if process.stride != 1:
        return None
    fetches = process.view(Stage.FETCH)
    own = fetches[fetches["start"] >= begun]
    return np.sort(own["start"] + own["wall"]).astype(float)


def _of_one_batch(at: FloatArray, size: FloatArray, ends: FloatArray) -> tuple[bool, float]:
    """Return the growth that came while a worker made its first batch, or else its last, bytes.

    The larger of them, at least: readings between which another batch was done do not count.

    Args:
        at, size: of the readings, ns and bytes.
        ends: when its batches were done, ns; empty: it was killed in the first.

    Returns:
        Whether it was the first, and the bytes.
    """
    if not len(ends):
        return True, float(size[-1] - size[0])
    before, after = at <= ends[0], at >= ends[-1]
    in_first = float(size[before][-1] - size[0]) if before.any() else 0.0
    in_last = float(size[-1] - size[after][0]) if after.any() else 0.0
    return in_first >= in_last, max(in_first, in_last)


def _series(gauges: Gauges, name: str, since: int = 0) -> tuple[FloatArray, FloatArray]:
    """Return the readings of a gauge since a time, ns: times, ns, and values, float64 [n] each."""
    number = next((at for at, (known, _) in enumerate(gauges.names) if known == name), -1)
    chosen = (gauges.gauge == number) & (gauges.time >= since)
    return gauges.time[chosen].astype(float), gauges.value[chosen]


def _sampled_gauges(rank: Rank) -> Gauges:
    """Return all readings of a rank; none where they cannot be read: another function notes why."""
    path = rank.folder / GAUGES
    try:
        if os.path.lexists(path):
            return read_gauges(path)
    except (FeedlineError, OSError, ValueError):
        pass
    return Gauges([], np.zeros(0, np.int64), np.zeros(0, np.int64), np.zeros(0))
