"""The bucket timeline of data parallel training, and the link that its buckets share.

The timeline is when each rank had each bucket ready, in every step of the usual shape. The link is
fitted to it, and steps follow from both.
"""

from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from feedline.analysis.intervals import FloatArray, IntArray, overlap
from feedline.analysis.ranks.cross_rank import CrossRank
from feedline.analysis.ranks.match import MISSING, CollectiveTable
from feedline.analysis.ranks.partition import BACKWARD
from feedline.analysis.traces.collectives import PHASES, SLOTS, Collectives, bus_factor, operation

_INIT = PHASES.index("init")
_MIN_REDUCED_SHARE = 0.9  # share of the bytes that have to be all-reduced in backward
_MIN_USUAL_SHARE = 0.8  # share of the steps that have to look alike
_MIN_LIKE_STEPS = 4  # steps
_Job = tuple[float, float, float]  # ready at, alpha, what the link alone takes: seconds


@dataclass(frozen=True)
class Timeline:
    """Steps of one shape.

    A step is the time from one release of all ranks to the next, so that its lengths add up to the
    run's: without evaluation, and without what was not kept.

    Attributes:
        ready: int64 [steps, buckets, ranks], ns since the release before: the rank had enqueued the
            bucket.
        period: int64 [steps], ns: from one release to the next.
        nbytes: int64 [buckets].
        synchronous: bool [buckets]: all ranks wait for it before they go on: what is ready later is
            counted from its end.
        group_ranks, slots: of the group that they belong to.
        dtype: of most bytes.
        numbers: int64 [steps]: the step of the first rank in which it ends.
        rows: int64 [steps, buckets]: of ``CollectiveTable``; empty where nothing was measured.
        gradients: bool [buckets]: all-reduced in backward; of those, DistributedDataParallel's where
            any are known to be its.
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


def cut_timeline(together: CrossRank, first: int = 0) -> Timeline:
    """Cut the run at the moments at which the last bucket of a step had arrived everywhere.

    Args:
        together: the ranks, compared.
        first: steps before it are left out.

    Raises:
        NoTimeline: it is not data parallel training of steps that look alike.
    """
    ranks, matched = together.ranks, together.matched
    if len(ranks) < 2 or len(ranks[0].steps) < _MIN_LIKE_STEPS + 1:
        raise NoTimeline("there are too few steps or ranks")
    rows = _rows(ranks[0], matched)
    step = ranks[0].step_at(matched.start[rows, 0])
    inside = step >= max(first - 1, 0)  # the one before tells where the first begins
    rows, step = rows[inside], step[inside]
    if not len(rows):
        raise NoTimeline("no step has a collective of all ranks")
    usual, numbers = _usual(matched, rows, step)
    if not len(usual):
        raise NoTimeline(
            f"fewer than {_MIN_USUAL_SHARE:.0%} of the steps have the same collectives"
        )
    shape = usual[0]
    nbytes = matched.nbytes[shape]
    if not nbytes.any():
        raise NoTimeline("its collectives move no bytes")
    gradients = _gradients(ranks[0], matched, shape)
    if nbytes[gradients].sum() < _MIN_REDUCED_SHARE * nbytes.sum():
        names = sorted(
            {operation(matched.names[int(matched.name[row])]) for row in shape[~gradients]}
        )
        beyond = (
            "DistributedDataParallel's buckets" if ranks[0].table["bucket"].any() else "backward"
        )
        raise NoTimeline(
            f"{1 - nbytes[gradients].sum() / max(nbytes.sum(), 1):.0%} of the bytes are "
            f"{', '.join(names)} outside {beyond}: "
            "only data-parallel all-reduces can be replayed"
        )
    return _cut(together, usual, numbers, gradients)


def _rows(first: Collectives, matched: CollectiveTable) -> IntArray:
    """Return the rows that all ranks took part in, in the first rank's order.

    Its constructor's are left out.
    """
    phase = np.full(len(matched.group), _INIT)
    row = matched.rows[0]
    phase[row[row >= 0]] = first.table["phase"][row >= 0]
    everybody = (
        matched.complete
        & matched.member.all(1)
        & (matched.end != MISSING).all(1)
        & (phase != _INIT)
    )
    rows = np.flatnonzero(everybody)
    return rows[np.argsort(matched.start[rows, 0], kind="stable")]


def _usual(matched: CollectiveTable, rows: IntArray, step: IntArray) -> tuple[IntArray, IntArray]:
    """Return rows [steps, buckets] of the steps that have the most common collectives.

    Their numbers are the second value.
    """
    begin = np.flatnonzero(np.diff(step, prepend=step[0] - 1))
    parts = np.split(rows, begin[1:])
    shapes = [(matched.name[part].tobytes(), matched.nbytes[part].tobytes()) for part in parts]
    most = max(set(shapes), key=shapes.count)
    chosen = [index for index, shape in enumerate(shapes) if shape == most]
    # buckets are rebuilt after the first step
    if len(chosen) < max(_MIN_LIKE_STEPS, _MIN_USUAL_SHARE * (len(shapes) - 3)):
        return np.zeros((0, 0), np.int64), np.zeros(0, np.int64)
    return np.stack([parts[index] for index in chosen]), step[begin][chosen]


def _gradients(first: Collectives, matched: CollectiveTable, shape: IntArray) -> np.ndarray:
    phase, sent = np.zeros(len(matched.group), np.int64), np.zeros(len(matched.group), bool)
    row = matched.rows[0]
    phase[row[row >= 0]] = first.table["phase"][row >= 0]
    sent[row[row >= 0]] = first.table["bucket"][row >= 0]
    reduced = np.array(
        [operation(matched.names[int(name)]) == "all_reduce" for name in matched.name[shape]], bool
    )
    inside = reduced & (phase[shape] == BACKWARD)
    by_ddp = inside & sent[shape]
    return by_ddp if by_ddp.any() else inside


def _cut(
    together: CrossRank, usual: IntArray, numbers: IntArray, gradients: np.ndarray
) -> Timeline:
    ranks, matched, met = together.ranks, together.matched, together.met
    synchronous = ~gradients | _last_of_backward(ranks[0], matched.start[usual[0], 0])
    start, end = met.start[usual], met.end[usual]  # [steps, buckets, ranks]
    release = end.max((1, 2))
    following = _following(ranks[0], matched.start[usual[:, -1], 0], numbers)
    if len(following) < _MIN_LIKE_STEPS:
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
    dtype = (
        ranks[0].dtypes[int(ranks[0].table["dtype"][entry[0]])]
        if len(entry) and ranks[0].dtypes
        else ""
    )
    slots = SLOTS.get(group.backend, 1)
    nbytes, ranks_of_group = matched.nbytes[usual[0]], len(group.ranks)
    return Timeline(
        ready,
        period,
        nbytes,
        synchronous,
        ranks_of_group,
        slots,
        dtype,
        numbers[following],
        usual[following],
        gradients,
    )


def _following(first: Collectives, last: IntArray, numbers: IntArray) -> IntArray:
    """Tell which steps follow the one before them, with nothing in between.

    Args:
        first: collectives of the first rank.
        last: int64 [steps], own time: the last bucket was enqueued.
        numbers: int64 [steps]: of the first rank.
    """
    before, after = numbers[:-1], numbers[1:]
    joined = (after - before == 1) & (first.steps[before, 1] == first.steps[after, 0])
    return np.flatnonzero(joined & (overlap(last[:-1], last[1:], *first.evaluation.T) == 0)) + 1


def _last_of_backward(first: Collectives, start: IntArray) -> np.ndarray:
    """Tell after which buckets a backward ends.

    It is the step's last, and with accumulation others before it.

    Args:
        first: collectives of the first rank.
        start: int64 [buckets], own time, ascending.
    """
    spans = first.stages.get("backward", np.zeros((0, 2), np.int64)).reshape(-1, 2)
    number = np.searchsorted(np.sort(spans[:, 0]), start, "right")
    return np.append(np.diff(number) != 0, True)


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
