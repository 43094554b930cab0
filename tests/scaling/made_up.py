"""Exact tables of collectives of ranks that never were."""

import numpy as np

from feedline.analysis.scaling.efficiency import Point
from feedline.analysis.traces.collectives import (
    COLLECTIVE_DTYPE,
    PHASES,
    Collectives,
    ProcessGroup,
    RankClock,
)

MS = 1_000_000  # ns
SOURCE = {
    1: 67758,
    2: 142704,
    4: 235271,
    8: 381000,
}  # images/s by GPUs: the source material's table


def points(table: dict[int, float], batch: float | None = None) -> list[Point]:
    return [Point(ranks, rate, batch=batch) for ranks, rate in table.items()]


def rank(
    number: int,
    starts: np.ndarray,
    ends: np.ndarray,
    ranks: int,
    step: int = 100 * MS,
    nbytes: int = 1 << 20,
    backward: tuple[int, int] = (30 * MS, 80 * MS),
    group: str = "world",
    first: int = 0,
    offset: int = 0,
) -> Collectives:
    """All-reduces in backward.

    Args:
        starts, ends: int64 [steps, buckets], ns from the begin of each step.
        offset: ns that the clock is ahead.
    """
    steps, buckets = starts.shape
    edges = offset + step * np.arange(steps + 1, dtype=np.int64)
    table = np.zeros(steps * buckets, COLLECTIVE_DTYPE)
    table["start"], table["end"] = (
        (edges[:-1, None] + starts).ravel(),
        (edges[:-1, None] + ends).ravel(),
    )
    table["nbytes"], table["sequence"] = nbytes, first + np.arange(steps * buckets)
    table["phase"] = PHASES.index("backward")
    spans = np.stack([edges[:-1] + backward[0], edges[:-1] + backward[1]], 1)
    at = np.array([0, 10**12], np.int64) + offset
    clock = RankClock(at, np.array([-offset, -offset], np.int64), 1000.0)
    groups, names = [ProcessGroup(group, tuple(range(ranks)), "gloo")], ["allreduce_"]
    return Collectives(
        number,
        f"host{number // 8}",
        table,
        groups,
        names,
        ["float32"],
        np.stack([edges[:-1], edges[1:]], 1),
        {"backward": spans},
        clock,
    )
