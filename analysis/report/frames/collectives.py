"""The frame ``collectives``: what the ranks did together."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np

from feedline.analysis.intervals import IntArray
from feedline.analysis.measure.gather import RankMetrics
from feedline.analysis.ranks.arrivals import Arrivals
from feedline.analysis.ranks.cross_rank import combine
from feedline.analysis.ranks.match import BoolArray
from feedline.analysis.ranks.partition import Partition
from feedline.analysis.ranks.read_collectives import collectives_of
from feedline.analysis.report.frames.moments import RANK, START, TIME, Moments
from feedline.analysis.report.frames.steps import numbers
from feedline.analysis.report.frames.table import Column, Rows, Table
from feedline.analysis.traces.collective_operations import operation
from feedline.analysis.traces.collectives import PHASES, Collectives

if TYPE_CHECKING:
    import pandas as pd

_UNENDED = "its end was not seen"
_ALONE = "not comparable with other ranks: their records are missing, or clocks cannot be compared"

COLLECTIVES = Table(
    "collectives",
    "One row per collective (or send, or receive) and rank, in order of rank and start. Rows of one collective share their number in "
    "`collective`. Empty where none was recorded.",
    (
        RANK,
        Column("collective", "integer", "", "Number of the collective, the same on all ranks", "it could not be matched with other ranks'"),
        Column("step", "integer", "", "Number of the step that it began in, as in `steps`", "it began outside all steps"),
        TIME,
        START,
        Column("operation", "text", "", "all_reduce, reduce_scatter, all_gather, broadcast, ..."),
        Column("bytes", "integer", "B", "The full message; of all_gather and reduce_scatter the larger side"),
        Column("dtype", "text", "", "Of its elements; unknown where it was not recorded"),
        Column("group", "text", "", "Name of its process group"),
        Column("group_size", "integer", "ranks", "Ranks in that group; 0: unknown"),
        Column("backend", "text", "", "gloo, nccl, ..."),
        Column("phase", "text", "", f"What the rank was doing when it began: {', '.join(PHASES)}"),
        Column("wall_s", "number", "s", "From the call until it was complete on this rank", _UNENDED),
        Column("wait_s", "number", "s", "Of that: until the last rank of the group had begun it, too", f"{_UNENDED}; or {_ALONE}"),
        Column("queue_s", "number", "s", "Of that: all ranks had begun it, and it was queued behind others", f"{_UNENDED}; or {_ALONE}"),
        Column("transfer_s", "number", "s", "Of that: its bytes moved. Collectives that move bytes at the same time share it", _UNENDED),
    ),
)


def collectives(ranks: Mapping[int, RankMetrics]) -> "pd.DataFrame":
    """The frame; of ranks that another run recorded, waiting is missing."""
    found = [one for rank in ranks.values() if (one := collectives_of(rank.rank)) is not None]
    return COLLECTIVES.frame(_parts(ranks, found) if found else [])


def _parts(ranks: Mapping[int, RankMetrics], found: Sequence[Collectives]) -> list[Rows]:
    together = combine(found)
    matched = together.matched
    rows = dict(zip(matched.ranks, matched.rows, strict=True))
    parts: list[Rows] = []
    for one in found:
        number = rows.get(one.rank, np.full(len(one.table), -1))
        whole = np.append(matched.whole, False)[number]  # number -1: the last
        spent = _spent(one, together.partitions[one.rank], together.arrivals[one.rank], whole)
        parts.append({**_of(ranks[one.rank], one), "collective": number, **spent})
    return parts


def _of(rank: RankMetrics, one: Collectives) -> Rows:
    table, groups = one.table, [one.groups[number] for number in one.table["group"].tolist()]
    return {
        **Moments.of(rank.rank).columns(table["start"].astype(np.int64)),
        "step": _steps(rank, one.step_at(table["start"].astype(np.int64))),
        "operation": [operation(one.names[number]) for number in table["name"].tolist()],
        "bytes": table["nbytes"],
        "dtype": [one.dtypes[number] for number in table["dtype"].tolist()],
        "group": [group.name for group in groups],
        "group_size": np.array([len(group.ranks) for group in groups], np.int64),
        "backend": [group.backend for group in groups],
        "phase": [PHASES[number] for number in table["phase"].tolist()],
    }


def _steps(rank: RankMetrics, index: IntArray) -> IntArray:
    """The steps' own numbers, -1: in none."""
    if rank.steps is None or not len(rank.steps.wall):
        return np.full(len(index), -1)
    return np.where(index >= 0, numbers(rank, rank.steps)[index], -1)


def _spent(one: Collectives, cut: Partition, others: Arrivals, whole: BoolArray) -> Rows:
    start, end = one.table["start"].astype(np.int64), one.table["end"].astype(np.int64)
    ended = end >= start
    known = ended & whole & cut.met
    return {
        "wall_s": np.where(ended, (end - start) / 1e9, np.nan),
        "wait_s": np.where(known, (others.last - start) / 1e9, np.nan),
        "queue_s": np.where(known, (others.free - others.last) / 1e9, np.nan),
        "transfer_s": cut.moving / 1e9,
    }
