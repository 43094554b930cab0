"""The link that gradient buckets share: fitted to a run, and the steps that follow from it."""

from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from feedline.analysis.intervals import FloatArray, IntArray
from feedline.analysis.ranks.buckets import Timeline
from feedline.analysis.ranks.cross_rank import CrossRank

_Job = tuple[float, float, float]  # ready at, alpha, what the link alone takes: seconds
# largest over smallest message from which on latency and bandwidth can be distinguished
_APART = 4.0


@dataclass(frozen=True)
class Link:
    """What carries the buckets.

    Attributes:
        bytes_per_s: bus bandwidth: bytes per second that a rank's link carries, of all buckets
            together.
        alpha_s: what a collective costs whatever its size; 0 where ``known`` is False.
        known: sizes differed enough to distinguish the two.
        slowness: float64 [steps, buckets]: how many times as long as this says the bytes of each
            moved; empty: not measured.
    """

    bytes_per_s: float
    alpha_s: float
    known: bool
    slowness: FloatArray = field(default_factory=lambda: np.zeros(0))


def fit_link(buckets: Timeline, together: CrossRank) -> Link:
    """Fit a link to bytes and the time in which they moved.

    It is not fitted to the steps, so that a replay can be compared with the measured steps.
    """
    # [steps, buckets], of the rank whose bytes moved longest; nan: unknown
    moved = together.moving()[buckets.rows].max(2) / 1e9
    sizes = np.broadcast_to(buckets.bus_bytes, moved.shape)
    known_bytes = moved > 0  # nan is not
    if not known_bytes.any():
        return Link(float("inf"), 0.0, False)
    alpha, known = _latency(moved[known_bytes], sizes[known_bytes])
    bytes_per_s = float(sizes[known_bytes].sum() / max((moved[known_bytes] - alpha).sum(), 1e-9))
    return Link(
        bytes_per_s, alpha, known, np.where(known_bytes, moved / (alpha + sizes / bytes_per_s), 1.0)
    )


def _latency(moved: np.ndarray, sizes: np.ndarray) -> tuple[float, bool]:
    """Return (seconds, whether sizes differ enough).

    The seconds are the line through the medians of the smallest and the largest size.
    """
    small, large = sizes.min(), sizes.max()
    if large < _APART * max(small, 1):
        return 0.0, False
    low, high = float(np.median(moved[sizes == small])), float(np.median(moved[sizes == large]))
    slope = max(high - low, 0.0) / (large - small)
    return max(low - slope * small, 0.0), True


def simulate_steps(ready: IntArray, buckets: Timeline, link: Link) -> FloatArray:
    """Return the length of each step, seconds.

    Args:
        ready: as in Timeline: int64 [steps, buckets, ranks], ns.
        buckets: the timeline.
        link: that the buckets share.
    """
    begin = ready.max(2) / 1e9
    slowness = link.slowness if len(link.slowness) else np.ones_like(begin)
    alone = np.stack([link.alpha_s * slowness, buckets.bus_bytes / link.bytes_per_s * slowness], 2)
    return np.array(
        [
            _step(row, took, buckets.synchronous, buckets.slots)
            for row, took in zip(begin.tolist(), alone.tolist(), strict=True)
        ]
    )


def _step(
    ready: list[float], alone: list[list[float]], synchronous: npt.NDArray[np.bool_], slots: int
) -> float:
    """Replay one step: buckets between two synchronous collectives share the link."""
    now, done = 0.0, 0.0
    waiting: list[_Job] = []
    for at, (alpha, demand), together in zip(ready, alone, synchronous, strict=True):
        waiting.append((now + max(at, 0.0), alpha, demand))
        if together:
            done = max(done, _share(waiting, slots))
            now, waiting = done, []
    return max(done, _share(waiting, slots)) if waiting else done


def _share(jobs: list[_Job], slots: int) -> float:
    """Return when the last of these jobs ends, seconds.

    They begin in order, ``slots`` at a time, and share the link evenly; alpha is not shared.

    Args:
        jobs: in the order of their enqueueing.
        slots: jobs under way at once.
    """
    now, queue = 0.0, list(jobs)
    running: list[list[float]] = []  # [seconds of alpha left, seconds of link left]
    while queue or running:
        while queue and len(running) < slots and queue[0][0] <= now:
            running.append(list(queue.pop(0)[1:]))
        if not running:
            now = queue[0][0]
            continue
        sharing = sum(left[0] <= 0 for left in running)
        until = min(left[0] if left[0] > 0 else left[1] * sharing for left in running)
        if queue and len(running) < slots:
            until = min(until, queue[0][0] - now)
        for left in running:
            if left[0] > 0:
                left[0] = 0.0 if left[0] - until < 1e-12 else left[0] - until
            else:
                left[1] -= until / sharing
        running = [left for left in running if left[0] > 0 or left[1] > 1e-12]
        now += until
    return now
