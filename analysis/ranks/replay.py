"""Replaying the bucket timeline: buckets become ready, share a link, and the step ends when the last has arrived.

Each bucket moves for as long as was measured. If it was slower than the link is on average, it is slower by the same factor in a changed
replay, because a link that stalls for a moment would stall there, too. Every answer is the measured step plus the difference between two
replays, so that what the replay leaves out cancels. Its interval comes from how far a replay with an even link is from the measured steps,
from how much the steps vary, and from the error that predicted gains had.
"""

from collections.abc import Hashable, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
import numpy.typing as npt

from feedline.analysis.intervals import IntArray, overlap
from feedline.analysis.ranks.communication import Prediction, Question, text
from feedline.analysis.ranks.cross_rank import CrossRank
from feedline.analysis.ranks.match import MISSING, CollectiveTable
from feedline.analysis.ranks.partition import BACKWARD
from feedline.analysis.traces.collectives import PHASES, SLOTS, Collectives, bus_factor, operation

_ROUNDS = 50  # until the length of a step is found, which they halve in the worst case
_UNSURE = 0.5  # of what this adds to a step (docs/measured/faults.md: four recordings were 0.7 to 1.2 times as much longer)


@dataclass(frozen=True)
class RankCpu:
    """What one rank's mean step takes of its machine.

    Attributes:
        machine: ranks of one share its CPUs.
        cpus: of the machine that they may use.
        cpu_s: CPU seconds of all of its processes.
        making_s: of them, of its workers.
        batch_s: seconds in which a worker with a CPU of its own makes a batch.
        busy_s: of the step, in which its main thread computes or waits for a CPU.
        workers: that make its batches; 0: its main process does.
    """

    machine: Hashable
    cpus: float
    cpu_s: float
    making_s: float
    batch_s: float
    busy_s: float
    workers: int = 0


@dataclass(frozen=True)
class Least:
    """What a step takes at least, in seconds.

    Attributes:
        computing_s: for the CPU time of all ranks.
        batches_s: until the workers of each rank have made its batch.
    """

    computing_s: float
    batches_s: float


NOTHING = Least(0.0, 0.0)


def needed_s(ranks: Sequence[RankCpu], asleep_s: float) -> float:
    """Seconds that a step takes at least in which all ranks compute at the same time.

    Args:
        asleep_s: of the step, in which no main thread computes.
    """
    machines = {rank.machine for rank in ranks}
    return max((_of_machine([rank for rank in ranks if rank.machine == machine], asleep_s) for machine in machines), default=0.0)


def batches_s(ranks: Sequence[RankCpu]) -> float:
    """Seconds in which the workers of each rank make the batch of a step; they worked ahead while another rank was late."""
    return max((rank.batch_s / rank.workers for rank in ranks if rank.workers), default=0.0)


def _of_machine(ranks: Sequence[RankCpu], asleep_s: float) -> float:
    cpus, step_s = min(rank.cpus for rank in ranks), asleep_s + sum(rank.cpu_s for rank in ranks)
    for _ in range(_ROUNDS):
        awake_s = step_s - asleep_s
        step_s = asleep_s + sum(rank.cpu_s - rank.making_s * _elsewhere(rank, awake_s, step_s) for rank in ranks) / cpus
    return step_s


def _elsewhere(rank: RankCpu, awake_s: float, step_s: float) -> float:
    """Share (0 to 1) of its workers' CPU time that falls into the rest of the step: halfway between what has to, of a batch that takes
    longer than the others are awake, and all that fits. Workers begin when a batch is taken; where in the step threads sleep is unknown."""
    making_s = min(rank.batch_s, step_s)
    if making_s <= 0:
        return 0.0
    least, most = max(0.0, 1 - awake_s / making_s), min(1.0, (step_s - awake_s) / making_s)
    return (least + most) / 2


_INIT = PHASES.index("init")
_ENOUGH = 0.9  # share of the bytes that have to be all-reduced in backward
_USUAL = 0.8  # share of the steps that have to look alike
_FEWEST = 4  # steps


@dataclass(frozen=True)
class Timeline:
    """Steps of one shape. A step is the time from one release of all ranks to the next, so that its lengths add up to the run's: without
    evaluation, and without what was not kept.

    Attributes:
        ready: int64 [steps, buckets, ranks], ns since the release before: the rank had enqueued the bucket.
        period: int64 [steps], ns: from one release to the next.
        nbytes: int64 [buckets].
        synchronous: bool [buckets]: all ranks wait for it before they go on: what is ready later is counted from its end.
        group_ranks, slots: of the group that they belong to.
        dtype: of most bytes.
        numbers: int64 [steps]: the step of the first rank in which it ends.
        rows: int64 [steps, buckets]: of ``CollectiveTable``; empty where nothing was measured.
        gradients: bool [buckets]: all-reduced in backward.
    """

    ready: IntArray
    period: IntArray
    nbytes: IntArray
    synchronous: np.ndarray
    group_ranks: int
    slots: int
    dtype: str
    numbers: IntArray
    rows: IntArray = field(default_factory=lambda: np.zeros((0, 0), np.int64))
    gradients: np.ndarray = field(default_factory=lambda: np.zeros(0, bool))

    @property
    def bus_bytes(self) -> np.ndarray:
        """float64 [buckets]: bytes that each rank's link has to carry."""
        return self.nbytes * bus_factor("all_reduce", self.group_ranks)


class NoTimeline(Exception):
    """Why this run has no such timeline, in words."""


def timeline(together: CrossRank, first: int = 0) -> Timeline:
    """Cut the run at the moments at which the last bucket of a step had arrived everywhere.

    Args:
        first: steps before it are left out.

    Raises:
        NoTimeline: it is not data parallel training of steps that look alike.
    """
    ranks, matched = together.ranks, together.matched
    if len(ranks) < 2 or len(ranks[0].steps) < _FEWEST + 1:
        raise NoTimeline("there are too few steps or ranks")
    rows = _rows(ranks[0], matched)
    step = ranks[0].step_at(matched.start[rows, 0])
    inside = step >= max(first - 1, 0)  # the one before tells where the first begins
    rows, step = rows[inside], step[inside]
    if not len(rows):
        raise NoTimeline("no step has a collective of all ranks")
    usual, numbers = _usual(matched, rows, step)
    if not len(usual):
        raise NoTimeline(f"fewer than {_USUAL:.0%} of the steps have the same collectives")
    shape = usual[0]
    nbytes = matched.nbytes[shape]
    if not nbytes.any():
        raise NoTimeline("its collectives move no bytes")
    gradients = _gradients(ranks[0], matched, shape)
    if nbytes[gradients].sum() < _ENOUGH * nbytes.sum():
        names = sorted({operation(matched.names[int(matched.name[row])]) for row in shape[~gradients]})
        raise NoTimeline(
            f"{1 - nbytes[gradients].sum() / max(nbytes.sum(), 1):.0%} of the bytes are {', '.join(names)} outside backward: "
            "only data-parallel all-reduces can be replayed"
        )
    return _cut(together, usual, numbers, gradients)


def backward_passes(first: Collectives, made: Timeline) -> int:
    """Return how often backward runs in a step of the timeline, on the first rank."""
    spans = np.sort(first.stages.get("backward", np.zeros((0, 2), np.int64)).reshape(-1, 2)[:, 0])
    step = first.step_at(spans)
    each = np.bincount(step[step >= 0], minlength=len(first.steps))[made.numbers]
    return int(np.median(each)) if len(each) else 0


def without_sync(ready: IntArray, synchronous: np.ndarray, dropped: np.ndarray) -> tuple[IntArray, np.ndarray]:
    """Return the same if no rank waits for some of the buckets: what follows them is ready that much after what came before.

    Args:
        ready, synchronous: as in Timeline.
        dropped: bool [buckets].
    """
    changed, before = ready.copy(), np.zeros((len(ready), ready.shape[2]), np.int64)
    for bucket in range(ready.shape[1]):
        changed[:, bucket] += before
        if synchronous[bucket]:
            before = changed[:, bucket].copy() if dropped[bucket] else np.zeros_like(before)
    return changed, synchronous & ~dropped


def _rows(first: Collectives, matched: CollectiveTable) -> IntArray:
    """Rows that all ranks took part in, in the first rank's order, its constructor's left out."""
    phase = np.full(len(matched.group), _INIT)
    row = matched.rows[0]
    phase[row[row >= 0]] = first.table["phase"][row >= 0]
    everybody = matched.whole & matched.member.all(1) & (matched.end != MISSING).all(1) & (phase != _INIT)
    rows = np.flatnonzero(everybody)
    return rows[np.argsort(matched.start[rows, 0], kind="stable")]


def _usual(matched: CollectiveTable, rows: IntArray, step: IntArray) -> tuple[IntArray, IntArray]:
    """Rows [steps, buckets] of the steps that have the most common collectives, and their numbers."""
    begin = np.flatnonzero(np.diff(step, prepend=step[0] - 1))
    parts = np.split(rows, begin[1:])
    shapes = [(matched.name[part].tobytes(), matched.nbytes[part].tobytes()) for part in parts]
    most = max(set(shapes), key=shapes.count)
    chosen = [index for index, shape in enumerate(shapes) if shape == most]
    if len(chosen) < max(_FEWEST, _USUAL * (len(shapes) - 3)):  # buckets are rebuilt after the first step
        return np.zeros((0, 0), np.int64), np.zeros(0, np.int64)
    return np.stack([parts[index] for index in chosen]), step[begin][chosen]


def _gradients(first: Collectives, matched: CollectiveTable, shape: IntArray) -> np.ndarray:
    phase = np.zeros(len(matched.group), np.int64)
    row = matched.rows[0]
    phase[row[row >= 0]] = first.table["phase"][row >= 0]
    reduced = np.array([operation(matched.names[int(name)]) == "all_reduce" for name in matched.name[shape]], bool)
    return reduced & (phase[shape] == BACKWARD)


def _cut(together: CrossRank, usual: IntArray, numbers: IntArray, gradients: np.ndarray) -> Timeline:
    ranks, matched, met = together.ranks, together.matched, together.met
    synchronous = ~gradients | _last_of_backward(ranks[0], matched.start[usual[0], 0])
    start, end = met.start[usual], met.end[usual]  # [steps, buckets, ranks]
    release = end.max((1, 2))
    following = _following(ranks[0], matched.start[usual[:, -1], 0], numbers)
    if len(following) < _FEWEST:
        raise NoTimeline("there are too few consecutive steps")
    ready = np.empty_like(start[following])
    since = release[following - 1][:, None] + np.zeros(start.shape[2], np.int64)
    for bucket in range(start.shape[1]):
        ready[:, bucket] = start[following, bucket] - since
        if synchronous[bucket]:
            since = np.maximum(since, end[following, bucket].max(1, keepdims=True))
    group = matched.groups[int(matched.group[usual[0, 0]])]
    period = release[following] - release[following - 1]
    largest = int(matched.nbytes[usual[0]].argmax())
    row = matched.rows[0]
    entry = np.flatnonzero(row == usual[0, largest])
    dtype = ranks[0].dtypes[int(ranks[0].table["dtype"][entry[0]])] if len(entry) and ranks[0].dtypes else ""
    slots = SLOTS.get(group.backend, 1)
    nbytes, ranks_of_group = matched.nbytes[usual[0]], len(group.ranks)
    return Timeline(ready, period, nbytes, synchronous, ranks_of_group, slots, dtype, numbers[following], usual[following], gradients)


def _following(first: Collectives, last: IntArray, numbers: IntArray) -> IntArray:
    """Which steps follow the one before them, with nothing in between.

    Args:
        last: int64 [steps], own time: the last bucket was enqueued.
    """
    before, after = numbers[:-1], numbers[1:]
    joined = (after - before == 1) & (first.steps[before, 1] == first.steps[after, 0])
    return np.flatnonzero(joined & (overlap(last[:-1], last[1:], *first.evaluation.T) == 0)) + 1


def _last_of_backward(first: Collectives, start: IntArray) -> np.ndarray:
    """Buckets after which a backward ends and waits for all of its own: the step's last, and with accumulation others before it.

    Args:
        start: int64 [buckets], own time, ascending.
    """
    spans = first.stages.get("backward", np.zeros((0, 2), np.int64)).reshape(-1, 2)
    number = np.searchsorted(np.sort(spans[:, 0]), start, "right")
    return np.append(np.diff(number) != 0, True)


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
    step_s, high = told.step_s + more_s, told.high + (1 + _UNSURE) * more_s + apart_s
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
