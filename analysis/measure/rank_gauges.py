"""The gauges of one rank's machine, thinned for a figure."""

import os
import re
from collections.abc import Iterable

import numpy as np

from feedline.analysis.measure.gather import COLUMNS
from feedline.analysis.measure.model import Gauge
from feedline.profiler.errors import FeedlineError
from feedline.profiler.samplers.gauge_file import Gauges, read_gauges
from feedline.profiler.store.layout import GAUGES
from feedline.profiler.store.run_folder import Rank

_OF_WORKER = re.compile(r"memory/loader\d+-worker\d+")


def read_rank_gauges(rank: Rank, notes: list[str]) -> list[Gauge]:
    """Return the machine's gauges, thinned for a figure."""
    path = rank.folder / GAUGES
    if not os.path.lexists(path):
        return []
    try:
        sampled = read_gauges(path)
    except (FeedlineError, OSError, ValueError) as error:
        notes.append(f"the machine's gauges cannot be read: {error}")
        return []
    origin = rank.manifest.anchors[0]["perf_counter_ns"] if rank.manifest.anchors else 0
    return list(
        _gauges(
            sampled if rank.slice is None else sampled.between(rank.slice.begin, rank.slice.end),
            origin,
        )
    )


def _gauges(sampled: Gauges, origin: int) -> Iterable[Gauge]:
    for index, (name, unit) in enumerate(sampled.names):
        if _OF_WORKER.fullmatch(name):  # killed.py reads it
            continue
        chosen = sampled.gauge == index
        values, times = sampled.value[chosen], (sampled.time[chosen] - origin) / 1e9
        if not len(values):
            continue
        groups = np.array_split(np.arange(len(values)), min(len(values), COLUMNS))
        yield Gauge(
            name,
            unit,
            float(
                np.average(values, weights=np.maximum(np.diff(times, prepend=0.0), 1e-9))
            ),  # the first ones come more often
            float(values.min()),
            float(values.max()),
            [float(times[group[0]]) for group in groups],
            [float(values[group].mean()) for group in groups],
        )
