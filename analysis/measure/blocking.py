"""What the makers of batches waited for while they were blocked.

It comes from looks at their threads that fell into the making of a batch.
"""

from dataclasses import dataclass

import numpy as np

from feedline.analysis.intervals import IntArray, holds
from feedline.profiler.events import Stage
from feedline.profiler.samplers.blocked_threads import (
    ON_LOCK,
    ON_NETWORK,
    ON_PROCESS,
    ON_SHARED_LOCK,
    ON_SLEEP,
    ON_STOP,
    ON_UNKNOWN,
)
from feedline.profiler.store.record_columns import Records
from feedline.profiler.store.segment_reader import Process

#: What a blocked thread does, by what it waits for.
DOING = {
    ON_SLEEP: "sleeping",
    ON_LOCK: "waiting for a lock or another thread",
    ON_SHARED_LOCK: "waiting for a lock or another process",
    ON_NETWORK: "waiting for the network",
    ON_PROCESS: "waiting for another process",
    ON_STOP: "stopped",
    ON_UNKNOWN: "blocked on something other than storage",
}


@dataclass(frozen=True)
class _Blocked:
    """Blocked makers of batches, as they were seen.

    Attributes:
        by: what they waited for -> share of the blocked time, largest first
            (profiler/samplers/blocked_threads.py has the words).
        looks: how many looks it is from.
    """

    by: dict[str, float]
    looks: int


def of(main: Process, makers: list[Process], loaders: frozenset[int]) -> _Blocked:
    """Count the looks that found a maker of these loaders' batches blocked; each stands for a time.

    Those that found it stopped are left out: no change of the program would spare that.
    """
    looks = main.view(Stage.LOOK)
    stops = [source for source, name in main.names.items() if name == ON_STOP]
    looks = looks[~np.isin(looks["source"], stops)]
    inside = np.zeros(len(looks), bool)
    for process in makers:
        fetches = process.of(Stage.FETCH)
        making = _intervals(fetches[np.isin(fetches["source"], list(loaders))])
        inside |= np.isin(looks["pid"], pids(process)) & holds(making, looks["start"])
    seen = looks[inside]
    weights = np.bincount(seen["source"], seen["stands_for"].astype(float))
    by: dict[str, float] = {}
    for source in np.flatnonzero(weights).tolist():
        kind = main.names.get(source, "unknown")
        kind = ON_LOCK if kind == ON_SHARED_LOCK else kind
        by[kind] = by.get(kind, 0.0) + float(weights[source] / weights.sum())
    return _Blocked(dict(sorted(by.items(), key=lambda row: -row[1])), len(seen))


def pids(process: Process) -> list[int]:
    """Return its id, and those of the workers of later epochs that wrote into the same file."""
    own = process.header.get("pid")
    return [*process.view(Stage.START)["pid"].tolist(), *([own] if isinstance(own, int) else [])]


def _intervals(spans: Records) -> IntArray:
    """Return these spans, which one thread made one after another, as int64 [n, 2], ns."""
    begins, walls = (
        spans[key][np.argsort(spans["start"], kind="stable")] for key in ("start", "wall")
    )
    return np.column_stack([begins, begins + walls])
