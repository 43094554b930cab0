"""A loader's worker that was killed: its size, its growth, and whether memory was full."""

import os
from dataclasses import replace

import numpy as np

from feedline.analysis.intervals import FloatArray
from feedline.analysis.measure.blocking import pids
from feedline.analysis.measure.memory import slope
from feedline.analysis.measure.model import KilledWorker
from feedline.analysis.measure.rank_metrics import RankMetrics
from feedline.profiler.errors import FeedlineError
from feedline.profiler.events import Stage
from feedline.profiler.samplers.gauge_file import Gauges, read_gauges
from feedline.profiler.store.layout import GAUGES
from feedline.profiler.store.record_columns import last_sign
from feedline.profiler.store.segment_reader import Process

#: Less is noise: of bytes, and of what it had at first.
_LEAST_BYTES, _LEAST_SHARE = 16e6, 0.05
_FEWEST = 3  # readings that show growth
_NEARLY = 0.9  # of a limit: the next piece of memory may reach it


def killed_worker(rank: RankMetrics) -> KilledWorker | None:
    """Return the worker whose end was that of a rank's training; None: there was none."""
    told = rank.rank.manifest.killed
    if not told:
        return None
    pid, limit = told.get("pid", 0), told.get("limit_bytes")
    kills, of_machine, hits = (told.get(name) for name in ("kills", "machine_kills", "limit_hits"))
    counted = of_machine if kills is None else kills
    process = next((one for one in rank.workers if pid in pids(one)), None)
    return replace(
        _seen(rank, process, pid) if process is not None else KilledWorker(None, 0),
        for_memory=None if counted is None else counted > 0,
        limit_bytes=None if limit is None else float(limit),
        limit_reached=None if hits is None else hits > 0,
    )


def nearly_full(rank: RankMetrics) -> tuple[float, float] | None:
    """Return what a control group had in use at the last reading, and its limit, bytes.

    None: there was room, or no limit.
    """
    gauges = _gauges(rank)
    _, used = _series(gauges, "cgroup/memory")
    _, limit = _series(gauges, "cgroup/memory_limit")
    if not len(used) or not len(limit) or used[-1] < _NEARLY * limit[-1]:
        return None
    return float(used[-1]), float(limit[-1])


def _seen(rank: RankMetrics, process: Process, pid: int) -> KilledWorker:
    """Return what is known of its memory, and when it was seen last."""
    loader, worker = int(str(process.header["loader"])), int(str(process.header["worker"]))
    begun, last = _life(process, pid)
    anchors, gauges = rank.rank.manifest.anchors, _gauges(rank)
    origin = anchors[0]["perf_counter_ns"] if anchors else 0
    seen = KilledWorker(worker, loader, (last - origin) / 1e9)
    name = f"memory/loader{loader}-worker"
    at, size = _series(gauges, f"{name}{worker}", begun)
    if not len(at):
        return seen
    names = {known for known, _ in gauges.names if known.startswith(name)}
    ends = [values[-1] for one in names if len(values := _series(gauges, one, begun)[1])]
    grown = float(size[-1] - size[0])
    grew = len(at) >= _FEWEST and grown > max(_LEAST_BYTES, _LEAST_SHARE * float(size[0]))
    return replace(
        seen,
        at_s=(max(float(at[-1]), last) - origin) / 1e9,
        size_bytes=float(size[-1]),
        grown_bytes=grown,
        grown_s=float(at[-1] - at[0]) / 1e9,
        per_second_bytes=slope(at / 1e9, size) if grew else None,
        together_bytes=float(sum(ends)),
        workers=len(ends),
    )


def _life(process: Process, pid: int) -> tuple[int, int]:
    """Return when a worker began and when its last record ended, ns."""
    starts = process.view(Stage.START)
    own = starts[starts["pid"] == pid]["start"]
    begun = int(own.max()) if len(own) else 0
    return begun, last_sign(process.records) or begun


def _gauges(rank: RankMetrics) -> Gauges:
    """Return all that was sampled; nothing where it cannot be read (rank_gauges.py says so)."""
    path = rank.rank.folder / GAUGES
    try:
        if os.path.lexists(path):
            return read_gauges(path)
    except (FeedlineError, OSError, ValueError):
        pass
    return Gauges([], np.zeros(0, np.int64), np.zeros(0, np.int64), np.zeros(0))


def _series(gauges: Gauges, name: str, since: int = 0) -> tuple[FloatArray, FloatArray]:
    """Return the readings of a gauge, ns and values, float64 [n] each."""
    number = next((at for at, (known, _) in enumerate(gauges.names) if known == name), -1)
    chosen = (gauges.gauge == number) & (gauges.time >= since)
    return gauges.time[chosen].astype(float), gauges.value[chosen]
