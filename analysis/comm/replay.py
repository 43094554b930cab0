"""Replaying the bucket timeline: buckets become ready, share a link, and the step ends when the last has arrived.

Each bucket moves as long as it was seen to, and as much longer than the rest in what would be different: a link that stalls for a moment
does so in both. Every answer is the measured step plus the difference of two replays, so that what the replay leaves out cancels; its
interval is made of how far a replay with an even link is from the measured steps and of how much the steps vary.
"""

from dataclasses import dataclass, field, replace

import numpy as np
import numpy.typing as npt

from feedline.analysis.comm.buckets import Timeline
from feedline.analysis.comm.question import Question
from feedline.analysis.timeline import IntArray

FloatArray = npt.NDArray[np.float64]
Job = tuple[float, float, float]  # ready at, alpha, what the link alone takes: seconds

#: How far the replayed mean step may be from the measured one before nothing is predicted from it.
MOST_OFF = 0.10

#: Steps that a replay looks at: evenly chosen from longer runs.
MOST_STEPS = 400


@dataclass(frozen=True)
class Link:
    """What carries the buckets.

    Attributes:
        bytes_per_s: bus bandwidth: bytes that a rank's link carries a second, of all buckets together.
        alpha_s: what a collective costs whatever its size; 0 where ``known`` is False.
        known: sizes differed enough to tell both apart.
        slowness: float64 [steps, buckets]: how many times as long as this says the bytes of each moved; empty: not measured.
    """

    bytes_per_s: float
    alpha_s: float
    known: bool
    slowness: FloatArray = field(default_factory=lambda: np.zeros(0))


@dataclass(frozen=True)
class Replayed:
    """A step as it would be.

    Attributes:
        step_s: None: refused, ``why`` says why.
        low, high: where it should lie, in 19 of 20 cases.
        gain_s: measured mean step less this.
    """

    asked: Question
    step_s: float | None
    low: float | None
    high: float | None
    gain_s: float
    why: str = ""


def refused(asked: Question, why: str) -> Replayed:
    """An answer that is not given."""
    return Replayed(asked, None, None, None, 0.0, why)


def thinned(made: Timeline) -> Timeline:
    """At most MOST_STEPS of its steps."""
    if len(made.period) <= MOST_STEPS:
        return made
    chosen = np.linspace(0, len(made.period) - 1, MOST_STEPS).astype(np.int64)
    return replace(made, ready=made.ready[chosen], period=made.period[chosen], numbers=made.numbers[chosen], rows=made.rows[chosen])


def simulate(ready: IntArray, made: Timeline, link: Link) -> FloatArray:
    """Length of each step, seconds. ``ready``: as in Timeline: int64 [steps, buckets, ranks], ns."""
    begin = ready.max(2) / 1e9
    slowness = link.slowness if len(link.slowness) else np.ones_like(begin)
    alone = np.stack([link.alpha_s * slowness, made.bus_bytes / link.bytes_per_s * slowness], 2)
    return np.array([_step(row, took, made.synchronous, made.slots) for row, took in zip(begin.tolist(), alone.tolist(), strict=True)])


def _step(ready: list[float], alone: list[list[float]], synchronous: npt.NDArray[np.bool_], slots: int) -> float:
    """One step: buckets between two synchronous collectives share the link."""
    now, done = 0.0, 0.0
    waiting: list[Job] = []
    for at, (alpha, demand), together in zip(ready, alone, synchronous, strict=True):
        waiting.append((now + max(at, 0.0), alpha, demand))
        if together:
            done = max(done, _share(waiting, slots))
            now, waiting = done, []
    return max(done, _share(waiting, slots)) if waiting else done


def _share(jobs: list[Job], slots: int) -> float:
    """When the last of these is done: they begin in order, ``slots`` at a time, and share the link evenly; alpha is not shared.

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


def answer(asked: Question, made: Timeline, base: FloatArray, changed: FloatArray, off_s: float, spread: float = 0.0) -> Replayed:
    """The measured mean step, moved by what the replay says.

    Args:
        base, changed: float64 [steps], s: the replay as it was, and as it would be.
        off_s: how far the mean step is from a replay that knows of the link no more than its bandwidth and latency.
        spread: s: what is not known about the change itself.
    """
    measured = made.period / 1e9
    mean = float(measured.mean())
    bias = float((base - measured).mean())
    if abs(bias) > MOST_OFF * mean:
        return refused(
            asked, f"the replay of this run is {abs(bias) / mean:.0%} off its measured step: something else than its buckets decides it"
        )
    gain = float((base - changed).mean())
    errors = base - changed - gain
    deviation = float(errors.std(ddof=1)) / np.sqrt(len(errors)) if len(errors) > 1 else 0.0
    half = off_s * min(1.0, abs(gain) / mean * 2 + 0.1) + 2 * deviation + spread
    step = mean - gain
    return Replayed(asked, step, float(max(step - half, 0.0)), float(step + half), gain)
