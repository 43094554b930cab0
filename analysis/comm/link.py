"""What this run's own collectives say about the link: its bandwidth, and what a collective costs whatever its size."""

import numpy as np

from feedline.analysis.comm.buckets import Timeline
from feedline.analysis.comm.cross_rank import CrossRank
from feedline.analysis.comm.replay import Link

APART = 4.0  # largest over smallest size from which on latency and bandwidth can be told apart


def fit(made: Timeline, together: CrossRank) -> Link:
    """Bytes over the time in which they moved; the measured steps have no part in it, so that a replay can be held against them."""
    moved = together.moving()[made.rows].max(2) / 1e9  # [steps, buckets], of the rank whose bytes moved longest; nan: not told
    sizes = np.broadcast_to(made.bus_bytes, moved.shape)
    told = moved > 0  # nan is not
    if not told.any():
        return Link(float("inf"), 0.0, False)
    alpha, known = _latency(moved[told], sizes[told])
    bytes_per_s = float(sizes[told].sum() / max((moved[told] - alpha).sum(), 1e-9))
    return Link(bytes_per_s, alpha, known, np.where(told, moved / (alpha + sizes / bytes_per_s), 1.0))


def _latency(moved: np.ndarray, sizes: np.ndarray) -> tuple[float, bool]:
    """(seconds, whether sizes differ enough): the line through the medians of the smallest and the largest size."""
    small, large = sizes.min(), sizes.max()
    if large < APART * max(small, 1):
        return 0.0, False
    low, high = float(np.median(moved[sizes == small])), float(np.median(moved[sizes == large]))
    slope = max(high - low, 0.0) / (large - small)
    return max(low - slope * small, 0.0), True
