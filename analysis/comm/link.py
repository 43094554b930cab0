"""What this run's own collectives say about the link: its bandwidth, and what a collective costs whatever its size."""

from collections.abc import Sequence

import numpy as np

from feedline.analysis.comm.buckets import Timeline
from feedline.analysis.comm.match import MISSING, Matched
from feedline.analysis.comm.partition import Meetings, Partition
from feedline.analysis.comm.replay import Link

APART = 4.0  # largest over smallest size from which on latency and bandwidth can be told apart


def fit(made: Timeline, matched: Matched, met: Meetings, partitions: Sequence[Partition]) -> Link:
    """Bytes over the time in which they moved; the measured steps have no part in it, so that a replay can be held against them."""
    moved, sizes = _moved(made, matched, met, partitions)
    chosen = ~np.isnan(moved) & (moved > 0)
    if not chosen.any():
        return Link(float("inf"), 0.0, False)
    moved, sizes = moved[chosen], sizes[chosen]
    alpha, known = _latency(moved, sizes)
    return Link(float(sizes.sum() / max((moved - alpha).sum(), 1e-9)), alpha, known)


def _moved(made: Timeline, matched: Matched, met: Meetings, partitions: Sequence[Partition]) -> tuple[np.ndarray, np.ndarray]:
    """Seconds and bus bytes of the collectives of these sizes, by the rank whose bytes moved longest; nan: not told."""
    sizes = np.unique(made.nbytes)
    wanted = np.isin(matched.nbytes, sizes) & (matched.end != MISSING).all(1)
    took = np.full(matched.start.shape, np.nan)
    for column, part in enumerate(partitions):
        row = matched.rows[column]
        took[row[row >= 0], column] = part.moving[row >= 0]
    factor = 2 * (made.group_ranks - 1) / made.group_ranks
    with np.errstate(all="ignore"):
        seconds = np.where(np.isnan(took[wanted]).any(1), np.nan, took[wanted].max(1)) / 1e9
    return seconds, matched.nbytes[wanted] * factor


def _latency(moved: np.ndarray, sizes: np.ndarray) -> tuple[float, bool]:
    """(seconds, whether sizes differ enough): the line through the medians of the smallest and the largest size."""
    small, large = sizes.min(), sizes.max()
    if large < APART * max(small, 1):
        return 0.0, False
    low, high = float(np.median(moved[sizes == small])), float(np.median(moved[sizes == large]))
    slope = max(high - low, 0.0) / (large - small)
    return max(low - slope * small, 0.0), True
