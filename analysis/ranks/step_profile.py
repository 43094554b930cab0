"""The usual step of a rank, from its collectives, and what the link between ranks gave."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from feedline.analysis.intervals import IntArray, length, union
from feedline.analysis.ranks.match import MISSING, CollectiveTable, match
from feedline.analysis.traces.collectives import PHASES, SLOTS, Collectives, bus_factor, operation

#: Steps left out at the beginning: DistributedDataParallel rebuilds its buckets after the first.
_FIRST_STEPS = 2
#: Messages up to here tell the latency (bytes), from there on the bandwidth of all messages of a
#: step does.
_MAX_SMALL_BYTES = 4096
_BACKWARD = PHASES.index("backward")


@dataclass(frozen=True)
class Bucket:
    """A collective that runs beside the backward pass.

    Attributes:
        ready_s: when a rank alone hands it over, after the begin of the step.
        nbytes: the whole message, S.
    """

    ready_s: float
    nbytes: float


@dataclass(frozen=True)
class StepProfile:
    """The median step of the fewest ranks.

    Attributes:
        backward_s: begin and end of the (last) backward, after the begin of the step.
        buckets: in order of ``ready_s``.
        blocking: bytes of each collective that the step stands still for, e.g. buffers in the
            forward.
        jitter_s: standard deviation of a rank's own time per step, without steps far off.
    """

    step_s: float
    backward_s: tuple[float, float]
    buckets: tuple[Bucket, ...]
    blocking: tuple[float, ...] = ()
    jitter_s: float = 0.0

    @property
    def nbytes(self) -> float:
        """Of all buckets."""
        return sum(bucket.nbytes for bucket in self.buckets)


@dataclass(frozen=True)
class Ring:
    """The ring that moves the bytes, as measured in a run.

    Attributes:
        bandwidth: B, bus bandwidth in B/s, while the run's own computing goes on.
        low, high: a tenth of the steps had less, a tenth more.
        alpha_s: latency of one of the 2 (n - 1) rounds of a ring.
        slots: collectives that are under way at once and share the link: two on gloo (its threads),
            one on NCCL.
        alpha_from: how alpha is known.
    """

    bandwidth: float
    low: float
    high: float
    alpha_s: float
    slots: int
    alpha_from: str = ""


def step_profile(collectives: Collectives, step_s: float) -> StepProfile | None:
    """Return the usual step; None: no backward was seen.

    It is that of most steps by number and size of messages, with the median of each time.

    Args:
        collectives: a rank, alone if there is such a run.
        step_s: its mean step.
    """
    first = min(_FIRST_STEPS, max(0, len(collectives.steps) - 2))
    steps = collectives.steps[first:, 0]
    backward = collectives.stages.get("backward", np.zeros((0, 2), np.int64))
    if not len(steps) or not len(backward):
        return None
    table = np.sort(collectives.table, order="start")
    place = collectives.step_at(table["start"]) - first
    kept = [table[(place == number)] for number in range(len(steps))]
    shapes = [
        tuple(zip(part["nbytes"].tolist(), (part["phase"] == _BACKWARD).tolist(), strict=True))
        for part in kept
    ]
    usual = Counter(shapes).most_common(1)[0][0]
    chosen = [number for number, shape in enumerate(shapes) if shape == usual]
    times = np.array([kept[number]["start"] - steps[number] for number in chosen]).reshape(
        len(chosen), -1
    )
    ready = np.median(times, axis=0) / 1e9
    factor = [_of_all_reduce(collectives.names[name]) for name in kept[chosen[0]]["name"]]
    messages = [
        (float(at), size * part, hidden)
        for at, (size, hidden), part in zip(ready, usual, factor, strict=True)
    ]
    within = _backward(steps, backward, collectives.step_at(backward[:, 0]) - first)
    buckets = sorted(
        (Bucket(at, size) for at, size, hidden in messages if hidden),
        key=lambda bucket: bucket.ready_s,
    )
    blocking = tuple(size for _, size, hidden in messages if not hidden)
    return (
        StepProfile(step_s, within, tuple(buckets), blocking, _jitter(collectives.walls[first:]))
        if within[1] > within[0]
        else None
    )


def _of_all_reduce(name: str) -> float:
    """Return bytes on the wire, over those of an all-reduce of the same message."""
    return (
        bus_factor(name, 2) / bus_factor("all_reduce", 2) if operation(name) != "barrier" else 0.0
    )


def _backward(steps: IntArray, backward: IntArray, place: IntArray) -> tuple[float, float]:
    """Return median begin and end of the last backward of a step, s after the begin of the step.

    Args:
        steps: int64 [steps], ns: where they begin.
        backward: int64 [k, 2], ns: begin and end of each.
        place: int64 [k]: the step of each backward.
    """
    last = [
        backward[place == number][-1] - steps[number]
        for number in range(len(steps))
        if (place == number).any()
    ]
    begin, end = np.median(np.array(last).reshape(-1, 2), axis=0) / 1e9 if last else (0.0, 0.0)
    return float(begin), float(end)


def _jitter(walls: IntArray) -> float:
    """Return the standard deviation of the steps from the median absolute deviation.

    A few slow steps do not move that.
    """
    wall = walls / 1e9
    return 1.4826 * float(np.median(np.abs(wall - np.median(wall))))


def ring_between(ranks: Sequence[Collectives]) -> Ring | None:
    """Return what the link gave between these ranks, step by step.

    None: they had no collective in common after the warm-up.

    The time of a message is that of the rank where it was shortest: the last one to come does not
    wait. What is under way at the same time shares the link, so that a step's bytes are divided by
    the time in which anything was.
    """
    if len(ranks) < 2:
        return None
    joined = match(ranks)
    # a rank alone moves nothing
    several = np.array([len(group.ranks) > 1 for group in joined.groups], bool)[joined.group]
    complete = several & joined.complete & joined.together & (joined.end != MISSING).any(1)
    lasted = np.where(
        (joined.start != MISSING) & (joined.end != MISSING),
        joined.end - joined.start,
        np.iinfo(np.int64).max,
    ).min(1)
    first = next(rank for rank in ranks if rank.rank == joined.ranks[0])
    end = joined.end[:, 0]
    complete &= (end != MISSING) & (lasted < np.iinfo(np.int64).max)
    place = first.step_at(end)
    wires = joined.nbytes * _factors(joined)
    rates = []
    for number in range(min(_FIRST_STEPS, max(0, len(first.steps) - 1)), len(first.steps)):
        chosen = complete & (place == number)
        wire = float(wires[chosen].sum())
        busy = length(union(end[chosen] - lasted[chosen], end[chosen]))
        if wire and busy:
            rates.append(wire / busy * 1e9)
    if not rates:
        return None
    alpha, source = _alpha(joined, lasted, complete)
    low, middle, high = (float(value) for value in np.quantile(rates, (0.1, 0.5, 0.9)))
    slots = max(SLOTS.get(group.backend, 1) for group in joined.groups)
    return Ring(middle, low, high, alpha, slots, source)


def _factors(joined: CollectiveTable) -> np.ndarray:
    """Return bytes on the wire of each rank, over those of the message: float64 [m]."""
    pairs = zip(joined.name.tolist(), joined.group.tolist(), strict=True)
    known = {
        (name, group): bus_factor(joined.names[name], len(joined.groups[group].ranks))
        for name, group in set(pairs)
    }
    return np.array(
        [known[pair] for pair in zip(joined.name.tolist(), joined.group.tolist(), strict=True)]
    )


def _alpha(joined: CollectiveTable, lasted: IntArray, complete: np.ndarray) -> tuple[float, str]:
    """Return the latency of a ring's round, from the shortest tenth of the small messages.

    The others waited for a rank or a thread.
    """
    reduced = np.array([operation(name) == "all_reduce" for name in joined.names] or [False])[
        joined.name
    ]
    small = complete & reduced & (joined.nbytes <= _MAX_SMALL_BYTES)
    if not small.any():
        return 0.0, "no small all-reduce in the run, so latency is counted in the constant term"
    sizes = np.array([len(group.ranks) for group in joined.groups])[joined.group]
    rounds = 2 * (sizes[small] - 1)
    return float(
        np.quantile(lasted[small] / rounds, 0.1)
    ) / 1e9, f"{int(small.sum())} all-reduces of at most {_MAX_SMALL_BYTES} bytes"
