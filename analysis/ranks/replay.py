"""Replaying the bucket timeline: buckets become ready, share a link, and the step ends when the last has arrived.

Each bucket moves for as long as was measured. If it was slower than the link is on average, it is slower by the same factor in a changed
replay, because a link that stalls for a moment would stall there, too. Every answer is the measured step plus the difference between two
replays, so that what the replay leaves out cancels. Its interval comes from how far a replay with an even link is from the measured steps,
from how much the steps vary, and from the error that predicted gains had.
"""

from dataclasses import dataclass, field, replace

import numpy as np
import numpy.typing as npt

from feedline.analysis.intervals import IntArray
from feedline.analysis.ranks.buckets import Timeline
from feedline.analysis.ranks.cross_rank import CrossRank
from feedline.analysis.ranks.model import Prediction
from feedline.analysis.ranks.question import Question, text
from feedline.analysis.ranks.shared_cpus import UNSURE, Least

FloatArray = npt.NDArray[np.float64]
_Job = tuple[float, float, float]  # ready at, alpha, what the link alone takes: seconds

#: How far the replayed mean step may be from the measured one before nothing is predicted from it.
_MOST_OFF = 0.10

#: Standard deviation of the measured gain over the predicted one, both as logarithms, less 1 (docs/measured/faults.md).
_MODEL_ERROR = 0.12

_APART = 4.0  # largest over smallest message from which on latency and bandwidth can be distinguished

#: How much faster workers may make batches than they did: from one run to the next (docs/measured/diff.md).
_BATCHES_VARY = 0.1

#: Steps that a replay looks at: evenly chosen from longer runs.
_MOST_STEPS = 400


@dataclass(frozen=True)
class Link:
    """What carries the buckets.

    Attributes:
        bytes_per_s: bus bandwidth: bytes per second that a rank's link carries, of all buckets together.
        alpha_s: what a collective costs whatever its size; 0 where ``known`` is False.
        known: sizes differed enough to distinguish the two.
        slowness: float64 [steps, buckets]: how many times as long as this says the bytes of each moved; empty: not measured.
    """

    bytes_per_s: float
    alpha_s: float
    known: bool
    slowness: FloatArray = field(default_factory=lambda: np.zeros(0))


def refused(asked: Question, why: str) -> Prediction:
    """A prediction that is refused, and why."""
    return Prediction(asked.id, asked.value, text(asked), None, None, None, 0.0, why)


def fit(made: Timeline, together: CrossRank) -> Link:
    """Fit a link to bytes and the time in which they moved, not to the steps, so that a replay can be compared with the measured steps."""
    moved = together.moving()[made.rows].max(2) / 1e9  # [steps, buckets], of the rank whose bytes moved longest; nan: unknown
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
    if large < _APART * max(small, 1):
        return 0.0, False
    low, high = float(np.median(moved[sizes == small])), float(np.median(moved[sizes == large]))
    slope = max(high - low, 0.0) / (large - small)
    return max(low - slope * small, 0.0), True


def thinned(made: Timeline) -> Timeline:
    """At most MOST_STEPS of its steps."""
    if len(made.period) <= _MOST_STEPS:
        return made
    chosen = np.linspace(0, len(made.period) - 1, _MOST_STEPS).astype(np.int64)
    return replace(made, ready=made.ready[chosen], period=made.period[chosen], numbers=made.numbers[chosen], rows=made.rows[chosen])


def simulate(ready: IntArray, made: Timeline, link: Link) -> FloatArray:
    """Length of each step, seconds.

    Args:
        ready: as in Timeline: int64 [steps, buckets, ranks], ns.
    """
    begin = ready.max(2) / 1e9
    slowness = link.slowness if len(link.slowness) else np.ones_like(begin)
    alone = np.stack([link.alpha_s * slowness, made.bus_bytes / link.bytes_per_s * slowness], 2)
    return np.array([_step(row, took, made.synchronous, made.slots) for row, took in zip(begin.tolist(), alone.tolist(), strict=True)])


def _step(ready: list[float], alone: list[list[float]], synchronous: npt.NDArray[np.bool_], slots: int) -> float:
    """One step: buckets between two synchronous collectives share the link."""
    now, done = 0.0, 0.0
    waiting: list[_Job] = []
    for at, (alpha, demand), together in zip(ready, alone, synchronous, strict=True):
        waiting.append((now + max(at, 0.0), alpha, demand))
        if together:
            done = max(done, _share(waiting, slots))
            now, waiting = done, []
    return max(done, _share(waiting, slots)) if waiting else done


def _share(jobs: list[_Job], slots: int) -> float:
    """Time at which the last of these jobs ends: they begin in order, ``slots`` at a time, and share the link evenly; alpha is not shared.

    Args:
        jobs: in the order of their enqueueing.
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


def without_rank(ready: IntArray, column: int) -> IntArray:
    """One rank as fast as the median of the others."""
    others = np.delete(ready, column, 2)
    changed = ready.copy()
    changed[:, :, column] = np.minimum(ready[:, :, column], np.median(others, 2).astype(np.int64))
    return changed


def level(ready: IntArray) -> IntArray:
    """No rank later than the median of all."""
    return np.minimum(ready, np.median(ready, 2, keepdims=True).astype(np.int64))


def apart_s(ready: IntArray, column: int) -> float:
    """Mean time, s, that ranks still wait for each other once the late rank is on time.

    Half the mean change, from one step to the next, of when the other ranks have their last bucket ready. The replay without the late rank
    makes it no later than their median in every step, which no real rank achieves.

    Args:
        ready: as in Timeline.
        column: of the late rank.
    """
    others = np.delete(ready.max(1), column, 1).astype(np.float64)  # [steps, ranks]
    return float(np.abs(np.diff(others, axis=0)).mean()) / 2e9 if len(others) > 1 else 0.0


def held(told: Prediction, least: Least, apart_s: float) -> Prediction:
    """The prediction, not faster than CPUs and workers allow, and not slower than the measured step.

    Args:
        apart_s: that ranks may still wait for each other; it widens the interval.
    """
    if told.step_s is None or told.low is None or told.high is None:
        return told
    measured = told.step_s + told.gain_s
    more_s = max(0.0, min(max(least.computing_s, least.batches_s), measured) - told.step_s)
    step_s, high = told.step_s + more_s, told.high + (1 + UNSURE) * more_s + apart_s
    low = max(told.low, min(least.batches_s, step_s) * (1 - _BATCHES_VARY))
    return replace(told, step_s=step_s, gain_s=told.gain_s - more_s, low=low, high=max(min(high, measured), told.high))


def answer(asked: Question, made: Timeline, base: FloatArray, changed: FloatArray, off_s: float, spread: float = 0.0) -> Prediction:
    """The measured mean step, changed by the difference between the two replays.

    Args:
        base, changed: float64 [steps], s: the replay as it was, and as it would be.
        off_s: how far the mean step is from a replay over a link with only a bandwidth and a latency.
        spread: s: uncertainty of the change itself.
    """
    measured = made.period / 1e9
    mean = float(measured.mean())
    bias = float((base - measured).mean())
    if abs(bias) > _MOST_OFF * mean:
        return refused(
            asked, f"the replay misses the measured step by {abs(bias) / mean:.0%}: something other than gradient buckets determines it"
        )
    gain = float((base - changed).mean())
    errors = base - changed - gain
    deviation = float(errors.std(ddof=1)) / np.sqrt(len(errors)) if len(errors) > 1 else 0.0
    step = mean - gain
    half = off_s * min(1.0, abs(gain) / mean * 2 + 0.1) + 2 * deviation + spread
    error = float(np.exp(2 * _MODEL_ERROR * abs(np.log(mean / step)))) if step > 0 else 1.0
    low, high = max(0.0, min(step - half, step / error)), max(step + half, step * error)
    return Prediction(asked.id, asked.value, text(asked), step, float(low), float(high), gain, "")
