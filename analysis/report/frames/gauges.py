"""The frame ``gauges``: the machine while the run went on."""

import os
from collections.abc import Mapping
from typing import TYPE_CHECKING

import numpy as np

from feedline.analysis.measure.gather import RankMetrics
from feedline.analysis.report.frames.moments import RANK, START, TIME, Moments
from feedline.analysis.report.frames.table import Column, Rows, Table
from feedline.profiler.errors import FeedlineError
from feedline.profiler.samplers.gauge_file import read_gauges
from feedline.profiler.store.layout import GAUGES as FILE
from feedline.profiler.store.run_folder import Rank

if TYPE_CHECKING:
    import pandas as pd

GAUGES = Table(
    "gauges",
    "One row per sample of a gauge of the machine, about one per second, in order of rank and time. "
    '`run.gauges.pivot_table(index="start_s", columns="gauge", values="value")` has a column per gauge.',
    (
        RANK,
        TIME,
        START,
        Column("gauge", "text", "", "What was sampled: cpu/used, memory/used, gpu0/sm, ..."),
        Column("unit", "text", "", "Of the value"),
        Column("value", "number", "as `unit`", "The value. A rate is the mean since the sample before"),
    ),
)


def gauges(ranks: Mapping[int, RankMetrics]) -> "pd.DataFrame":
    """The frame. Ranks whose file is missing or damaged have no rows: the report's notes name them."""
    parts = [part for rank in ranks.values() if (part := _part(rank.rank)) is not None]
    return GAUGES.frame(parts)


def _part(rank: Rank) -> Rows | None:
    path = rank.folder / FILE
    if not os.path.lexists(path):
        return None
    try:
        sampled = read_gauges(path)
    except (FeedlineError, OSError, ValueError):
        return None
    if rank.slice is not None:
        sampled = sampled.between(rank.slice.begin, rank.slice.end)
    names = [sampled.names[number] for number in sampled.gauge.tolist()]
    return {
        **Moments.of(rank).columns(sampled.time),
        "gauge": [name for name, _ in names],
        "unit": [unit for _, unit in names],
        "value": sampled.value.astype(np.float64),
    }
