"""A rank's step as a line that is swept.

At each moment it computes, moves bytes, waits for a late rank, or stands in a queue. While any
collective in flight has all its ranks and a free slot, bytes move: transfer. Else, while any has
all its ranks, it stands in a queue, behind one that waits. Else the rank waits for the ranks that
are missing. What its own backward covers is hidden. Summing waits over collectives instead counts
the same moment several times.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from feedline.analysis.intervals import IntArray
from feedline.analysis.ranks.aligned_clocks import RankArrivals
from feedline.analysis.ranks.match import MISSING
from feedline.analysis.traces.collectives import BETWEEN_TWO, PHASES, Collectives, operation
from feedline.profiler.store.manifest import Manifest

RANK_PARTS = (
    "compute",
    "hidden_transfer",
    "exposed_transfer",
    "hidden_wait",
    "exposed_wait",
    "queue",
)
_WAITS = ("hidden_wait", "exposed_wait")
KNOWN_BY_COMPARISON = (*_WAITS, "queue")  # known only by comparison with another rank
BLOCKED = "blocked"  # a stage that a recorder may have: the main thread stands in Work.wait
# share of the end of a backward in which collectives are in flight, from which on it is taken for
# waiting and not for computing
_UNFINISHED = 0.9
# the same of DistributedDataParallel's buckets, which it copies into the gradients afterwards: less
# than sending them
_BUCKET_TAIL = 0.5
BACKWARD = PHASES.index("backward")
#: Of a model's parameters in float32, that the collectives of a step move at least if they carry
#: gradients, however compressed.
_LEAST_SHARE = 0.01
_PARAMETER_BYTES = 4


@dataclass(frozen=True)
class Partition:
    """One rank's steps.

    Attributes:
        parts: PARTS -> int64 [steps], ns; they sum to the steps' lengths (Collectives.walls).
        blamed: int64 [steps, ranks], ns: waiting, by the rank that was waited for (Arrivals.ranks).
        exposed: (operation, phase in which it was called) -> float64 [steps], ns: exposed_transfer,
            shared evenly while several move.
        moving: float64 [k]: ns that bytes moved for each entry of the rank's table, shared evenly
            while several move; nan: end unknown.
        unended: entries whose end is unknown: they are in ``compute``.
        met: whether any of its collectives can be compared with another rank's. Else nothing
            separates waiting from transfer.
    """

    rank: int
    parts: dict[str, IntArray]
    blamed: IntArray
    exposed: dict[tuple[str, str], npt.NDArray[np.float64]]
    moving: npt.NDArray[np.float64]
    unended: int
    met: bool


def partition(collectives: Collectives, others: RankArrivals) -> Partition:
    """Split one rank's time into parts."""
    table = collectives.table
    start, end = table["start"].astype(np.int64), table["end"].astype(np.int64)
    ended = end >= start
    start, end, last, free, late = (
        values[ended] for values in (start, end, others.last, others.free, others.late)
    )
    backward = computing_spans(collectives)
    steps, evaluation = collectives.steps.ravel(), collectives.evaluation.ravel()
    times = [steps, evaluation, start, last, free, end, backward.ravel()]
    edges = _distinct(times) if len(collectives.steps) else np.zeros(0, np.int64)
    length = np.diff(edges)
    moving = _count(edges, free, end)
    kind = _classify(
        _count(edges, start, end), moving, _count(edges, last, free), _count(edges, *backward.T) > 0
    )
    step, count = collectives.step_at(edges[:-1]), len(collectives.steps)
    inside = step >= 0
    parts = {name: np.bincount(step[pick], length[pick], count).astype(np.int64)
             for number, name in enumerate(RANK_PARTS) for pick in [inside & (kind == number)]}  # fmt: skip
    waiting = inside & np.isin(kind, [RANK_PARTS.index(name) for name in _WAITS])
    owner = _oldest(edges, start, end, waiting)
    columns = max(len(others.ranks), 1)
    known = waiting & (owner >= 0)
    cell = step[known] * columns + late[owner[known]]
    blamed = np.bincount(cell, length[known], count * columns).astype(np.int64)
    each = np.where(moving > 0, length / np.maximum(moving, 1), 0.0)
    took = np.full(len(table), np.nan)
    took[ended] = _moved(edges, each, free, end)
    bare = np.where(inside & (kind == RANK_PARTS.index("exposed_transfer")), each, 0.0)
    exposed = {
        what: np.bincount(
            step[inside], (bare * _count(edges, free[mine], end[mine]))[inside], count
        ).astype(np.float64)
        for what, mine in _kinds(collectives, ended)
    }
    return Partition(
        rank=collectives.rank,
        parts=parts,
        blamed=blamed.reshape(count, columns),
        exposed=exposed,
        moving=took,
        unended=int((~ended).sum()),
        met=others.met,
    )


def _moved(
    edges: IntArray, each: npt.NDArray[np.float64], free: IntArray, end: IntArray
) -> npt.NDArray[np.float64]:
    """Return how long bytes moved for each collective, float64 [k], ns.

    Args:
        edges: int64 [n + 1], ns: of the pieces.
        each: float64 [n], ns: a piece's length, shared evenly among those that move in it.
        free, end: int64 [k], ns, among the edges: since when a collective may move, and its end.
    """
    if not len(edges):
        return np.zeros(len(end))
    before = np.concatenate([[0.0], np.cumsum(each)])
    return before[np.searchsorted(edges, end)] - before[np.searchsorted(edges, free)]


def _kinds(
    collectives: Collectives, chosen: npt.NDArray[np.bool_]
) -> Iterator[tuple[tuple[str, str], npt.NDArray[np.bool_]]]:
    """Return which of the chosen entries of the table are of each (operation, phase)."""
    names = np.array([operation(name) for name in collectives.names] or [""])[
        collectives.table["name"][chosen]
    ]
    phases = collectives.table["phase"][chosen]
    for name in np.unique(names).tolist():
        for phase in np.unique(phases[names == name]).tolist():
            yield (name, PHASES[phase]), (names == name) & (phases == phase)


def computing_spans(collectives: Collectives) -> IntArray:
    """Return the rank's own backwards, without the time in which they only waited.

    DistributedDataParallel waits for its buckets inside backward, and then copies them into the
    gradients. Where a recorder saw the wait (stage ``blocked``), it is taken out. Else a backward
    ends with its last bucket, or with its last collective of any kind, if they are in flight
    through most of the rest of it: the last bucket is full when the last gradient is.

    Returns:
        int64 [k, 2], ns, own time.
    """
    spans = collectives.stages.get("backward", np.zeros((0, 2), np.int64)).reshape(-1, 2)
    if BLOCKED in collectives.stages:
        return without_holes(spans, collectives.stages[BLOCKED].reshape(-1, 2))
    called = collectives.table[
        (collectives.table["phase"] == BACKWARD)
        & (collectives.table["end"] >= collectives.table["start"])
    ]
    ends = np.minimum(
        _until_waiting(called, spans, _UNFINISHED),
        _until_waiting(called[called["bucket"]], spans, _BUCKET_TAIL),
    )
    return np.stack([spans[:, 0], ends], 1)


def _until_waiting(mine: npt.NDArray[np.void], spans: IntArray, least: float) -> IntArray:
    """Return when each backward only waits for the last of these collectives, else its end.

    int64 [k], ns.

    Args:
        mine: rows of the collectives.
        spans: int64 [k, 2], ns: the backwards.
        least: share of the rest of the backward in which they have to be in flight.
    """
    begin, ends = spans[:, 0], spans[:, 1].copy()
    start, done = np.ascontiguousarray(mine["start"]), np.append(mine["end"], MISSING)
    low, high = np.searchsorted(start, begin), np.searchsorted(start, ends)
    some = np.flatnonzero(low < high)
    if len(some):
        low, high, stop = low[some], high[some], ends[some]
        enqueued = start[high - 1]
        latest = np.minimum(np.maximum.reduceat(done, np.stack([low, high], 1).ravel())[::2], stop)
        waits = (stop > enqueued) & (latest - enqueued >= least * (stop - enqueued))
        ends[some] = np.where(waits, enqueued, stop)
    return ends


def without_holes(spans: IntArray, holes: IntArray) -> IntArray:
    """Take intervals out of other intervals. All int64 [k, 2]."""
    edges = np.unique(np.concatenate([spans.ravel(), holes.ravel()]))
    left = (_count(edges, *spans.T) > 0) & (_count(edges, *holes.T) == 0)
    return (
        np.stack([edges[:-1][left], edges[1:][left]], 1)
        if len(edges)
        else np.zeros((0, 2), np.int64)
    )


def _count(edges: IntArray, start: IntArray, end: IntArray) -> IntArray:
    """Return how many intervals cover each piece between two neighboring edges.

    All their ends are among the edges.
    """
    if not len(edges):
        return np.zeros(0, np.int64)
    change = np.bincount(np.searchsorted(edges, start), minlength=len(edges)) - np.bincount(
        np.searchsorted(edges, end), minlength=len(edges)
    )
    return np.cumsum(change)[:-1]


def _classify(
    flying: IntArray, moving: IntArray, queued: IntArray, covered: npt.NDArray[np.bool_]
) -> IntArray:
    """Return the index into RANK_PARTS for each piece."""
    compute, hidden_transfer, exposed_transfer, hidden_wait, exposed_wait, queue = range(
        len(RANK_PARTS)
    )
    transfer = np.where(covered, hidden_transfer, exposed_transfer)
    wait = np.where(covered, hidden_wait, exposed_wait)
    return np.where(
        moving > 0, transfer, np.where(queued > 0, queue, np.where(flying > 0, wait, compute))
    )


def _oldest(
    edges: IntArray, start: IntArray, end: IntArray, wanted: npt.NDArray[np.bool_]
) -> IntArray:
    """Return which of the collectives in flight began first, for the wanted pieces.

    It is -1 elsewhere.
    """
    order = np.argsort(start, kind="stable")
    begin, stop = start[order], end[order]
    begin = np.maximum(begin, np.concatenate([begin[:1], np.maximum.accumulate(stop)[:-1]]))
    own = begin < stop  # what an earlier one does not cover already
    begin, stop, order = begin[own], stop[own], order[own]
    if not len(order) or not len(edges):
        return np.full(max(len(edges) - 1, 0), -1, np.int64)
    place = np.searchsorted(begin, edges[:-1], "right") - 1
    held = wanted & (place >= 0) & (edges[:-1] < stop[place])
    return np.where(held, order[place], -1)


def _distinct(times: Sequence[IntArray]) -> IntArray:
    """Return each time once, ascending.

    Sorted runs that follow each other are sorted fastest by merging.
    """
    ordered = np.sort(np.concatenate(times), kind="stable")
    return ordered[np.append(True, np.diff(ordered) > 0)] if len(ordered) else ordered


def exchanges_gradients(collectives: Collectives, manifest: Manifest) -> bool | None:
    """Tell whether the rank's steps exchange gradients with other ranks.

    None: its communication, or its model, was not seen.

    Collectives during a backward, messages between two ranks, and a step that moves a part of the
    model do; an all-reduced metric does not.
    """
    if collectives.unseen:
        return None
    table, step = collectives.table, collectives.step_at(collectives.table["start"])
    several = np.array([len(group.ranks) > 1 for group in collectives.groups] or [False])[
        table["group"]
    ]
    carries = np.array([operation(name) != "barrier" for name in collectives.names] or [False])[
        table["name"]
    ]
    if not len(collectives.steps):
        # then no collective lies in a step, whatever the program does
        sent = several & (table["bucket"] | (table["phase"] == BACKWARD))
        return True if sent.any() else None
    inside = (step >= 0) & several & carries
    if not inside.any():
        return False
    between = np.array([operation(name) in BETWEEN_TWO for name in collectives.names])[
        table["name"]
    ]
    if (inside & (between | table["bucket"] | (table["phase"] == BACKWARD))).any():
        return True
    if not (elements := _trained_elements(manifest)):
        return None
    return bool(
        np.bincount(step[inside], table["nbytes"][inside]).max()
        >= _LEAST_SHARE * _PARAMETER_BYTES * elements
    )


def _trained_elements(manifest: Manifest) -> int:
    """Return the elements of the parameters that the rank's optimizers update; 0: unknown."""
    optimizers = manifest.training.get("optimizers")
    known = (
        [optimizer for optimizer in optimizers if isinstance(optimizer, dict)]
        if isinstance(optimizers, list)
        else []
    )
    return sum(
        int(group.get("elements", 0))
        for optimizer in known
        for group in optimizer.get("groups", [])
    )
