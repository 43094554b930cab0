"""What the makers of batches waited for while they were blocked: looks at their threads that fell into the making of a batch."""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from feedline.analysis.timeline import IntArray
from feedline.profiler.events import Stage
from feedline.profiler.store.columns import Records
from feedline.profiler.store.segment_reader import Process


@dataclass(frozen=True)
class Blocked:
    """Blocked makers of batches, as they were seen.

    Attributes:
        by: what they waited for -> share of the blocked time, largest first (profiler/samplers/system_calls.py has the words).
        looks: how many looks it is from.
    """

    by: dict[str, float]
    looks: int


def of(main: Process, makers: list[Process], loaders: frozenset[int]) -> Blocked:
    """Count the looks that found a maker of these loaders' batches blocked; each stands for a time."""
    looks = main.view(Stage.LOOK)
    inside = np.zeros(len(looks), bool)
    for process in makers:
        fetches = process.of(Stage.FETCH)
        inside |= np.isin(looks["pid"], _pids(process)) & _within(looks["start"], fetches[np.isin(fetches["source"], list(loaders))])
    seen = looks[inside]
    weights = np.bincount(seen["source"], seen["stands_for"].astype(float))
    ordered = sorted(np.flatnonzero(weights).tolist(), key=lambda source: -weights[source])
    return Blocked({main.names.get(source, "unknown"): float(weights[source] / weights.sum()) for source in ordered}, len(seen))


def _pids(process: Process) -> list[int]:
    """Its own, and those of the workers of later epochs that wrote into the same file."""
    own = process.header.get("pid")
    return [*process.view(Stage.START)["pid"].tolist(), *([own] if isinstance(own, int) else [])]


def _within(times: IntArray, spans: Records) -> npt.NDArray[np.bool_]:
    """Whether each time lies in one of the spans, which one thread made one after another."""
    spans = spans[np.argsort(spans["start"], kind="stable")]
    last = np.searchsorted(spans["start"], times, "right") - 1
    if not len(spans):
        return np.zeros(len(times), bool)
    return (last >= 0) & (times < spans["start"][last] + spans["wall"][last])
