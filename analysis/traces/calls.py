"""What the host called in the steps, and what of the device's time came of it.

Events are a tree: which one called which.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from feedline.analysis.intervals import BoolArray, FloatArray, IntArray, parents
from feedline.analysis.traces.kernel_names import of_kinds
from feedline.analysis.traces.operands import Costs
from feedline.analysis.traces.trace_columns import Kind, Trace
from feedline.analysis.traces.trace_steps import Threads, TraceWindow

# of cutting what outlasts its caller; clocks that are read one after another need one or two
_CUT_ROUNDS = 8
_PIECE_EVENTS = 65_536  # events that are looked at together, at least
# of the times of threads that are laid one after the other: twice as much fits into 64 bits
_MAX_LAID_NS = 1 << 60
_LISTED = (Kind.OPERATOR, Kind.ANNOTATION, Kind.PYTHON)
#: Ranges of torch.distributed around what a backend is told to do.
_BACKEND = re.compile(r"^(nccl|gloo|ucc|mpi|xccl|hccl):")


@dataclass(frozen=True, eq=False)
class _Nest:
    """Events of one thread as a tree, in the order in which they began.

    What an event called follows it at once.

    Attributes:
        parent: int64 [n]; -1: it has no caller.
        wall: int64 [n], ns, cut where it outlasted its caller.
        after: int64 [n]: the first event that it did not call, directly or through others.
        levels: rows of each depth, the outermost first.
    """

    parent: IntArray
    wall: IntArray
    after: IntArray
    levels: list[IntArray]

    @property
    def own(self) -> IntArray:
        """int64 [n], ns: without those it called."""
        called = np.bincount(
            self.parent[self.parent >= 0], self.wall[self.parent >= 0], len(self.parent)
        )
        return np.maximum(self.wall - called.astype(np.int64), 0)

    def total(self, of_each: IntArray) -> IntArray:
        """Sum over each event and all that it called, int64 [n]."""
        before = np.append(0, np.cumsum(of_each))
        return np.asarray(before[self.after] - before[:-1], np.int64)

    def inherited(self, value: IntArray) -> IntArray:
        """Return int64 [n]: the event's own value, or that of its nearest caller that has one.

        -1: none has.
        """
        inherited = value.copy()
        for rows in self.levels[1:]:
            inherited[rows] = np.where(value[rows] >= 0, value[rows], inherited[self.parent[rows]])
        return inherited


def _nest(start: IntArray, wall: IntArray) -> _Nest:
    """Make the tree of events that lie in each other.

    Args:
        start: int64 [n], ns, ascending.
        wall: int64 [n], ns, descending where starts are equal.
    """
    # an event of no length lasts half a nanosecond, so that it lies in whatever goes on
    begin = 2 * start
    end = begin + np.maximum(2 * wall, 1)
    for _ in range(_CUT_ROUNDS):
        levels = list(_levels(begin, end))
        parent = _parents(levels, len(start))
        cut = _cut(levels, parent, begin, end)
        if (cut == end).all():
            break
        end = cut
    else:  # a trace that makes no sense: linear, but event by event
        parent = parents(start, np.maximum(wall, 1))
        levels = list(_by_depth(_depths(parent)))
        end = _cut(levels, parent, begin, end)
    return _Nest(
        parent, (end - begin) // 2, np.searchsorted(begin, end, "left").astype(np.int64), levels
    )


def _levels(begin: IntArray, end: IntArray) -> Iterator[IntArray]:
    depth = np.arange(len(begin)) - np.searchsorted(np.sort(end, kind="stable"), begin, "right")
    return _by_depth(depth)


def _by_depth(depth: IntArray) -> Iterator[IntArray]:
    order = np.argsort(depth, kind="stable")
    return iter(np.split(order, np.cumsum(np.bincount(depth))[:-1])) if len(depth) else iter(())


def _parents(levels: list[IntArray], count: int) -> IntArray:
    parent = np.full(count, -1, np.int64)
    for above, rows in zip(levels, levels[1:]):
        parent[rows] = above[np.searchsorted(above, rows) - 1]
    return parent


def _cut(levels: list[IntArray], parent: IntArray, begin: IntArray, end: IntArray) -> IntArray:
    """Cut the ends to that of the caller, if it was still there."""
    cut = end.copy()
    for rows in levels[1:]:
        callers = cut[parent[rows]]
        cut[rows] = np.where(callers > begin[rows], np.minimum(cut[rows], callers), cut[rows])
    return cut


def _depths(parent: npt.NDArray[np.int64]) -> IntArray:
    depth = np.zeros(len(parent), np.int64)
    for row, above in enumerate(parent.tolist()):
        depth[row] = depth[above] + 1 if above >= 0 else 0
    return depth


@dataclass(frozen=True)
class CallRow:
    """All calls of one name.

    Attributes:
        name, kind: OPERATOR, ANNOTATION or PYTHON.
        count: calls, without those that a call of the same name made at once (in 2021 each operator
            was there twice).
        total_ns: host time, with what they called.
        own_ns: host time without operators, functions, ranges and runtime calls inside.
        device_ns: device time of what they and those they called launched, summed over kernels.
        flop: of the calls whose cost is known, each counted once, at the innermost operator; None:
            none is.
        nbytes: operands and results of these; None: the trace does not say their types.
        counted_ns: device time of these calls; host time where there is no device.
    """

    name: str
    kind: Kind
    count: int
    total_ns: int
    own_ns: int
    device_ns: int
    flop: int | None = None
    nbytes: int | None = None
    counted_ns: int = 0

    @property
    def flop_per_s(self) -> float | None:
        return self.flop / self.counted_ns * 1e9 if self.flop and self.counted_ns else None

    @property
    def flop_per_byte(self) -> float | None:
        return self.flop / self.nbytes if self.flop and self.nbytes else None


@dataclass(frozen=True, eq=False)
class HostCalls:
    """The host's side.

    Attributes:
        rows: by device time, then by host time, the most first.
        operator: int32 [events]: for runtime calls, index into ``Trace.names`` of the operator that
            made it, or where there is none of the range around it; -1 elsewhere, or unknown.
        backend: int32 [events]: for runtime calls, index into ``Trace.names`` of the range around
            it like ``nccl:all_reduce``; -1: none.
        collective: int32 [events]: for runtime calls, index into ``Trace.collectives`` of what is
            around it; -1: none.
    """

    rows: list[CallRow]
    operator: npt.NDArray[np.int32]
    backend: npt.NDArray[np.int32]
    collective: npt.NDArray[np.int32]


@dataclass(frozen=True, eq=False)
class _CallSums:
    """Per name, int64 [names]."""

    count: IntArray
    total: IntArray
    own: IntArray
    device: IntArray
    flop: FloatArray
    nbytes: FloatArray
    counted: IntArray

    @classmethod
    def zero(cls, names: int) -> "_CallSums":
        def whole() -> IntArray:
            return np.zeros(names, np.int64)

        return cls(whole(), whole(), whole(), whole(), np.zeros(names), np.zeros(names), whole())


def sum_calls(trace: Trace, who: Threads, window: TraceWindow) -> HostCalls:
    """Sum up what each thread of the host called.

    Args:
        trace: of a rank.
        who: its threads.
        window: rows are of the calls that began in it; what a launch was made for is told of all.
    """
    events = trace.events
    work = np.flatnonzero(who.launcher >= 0)
    launched = np.zeros(len(events), np.int64)
    np.add.at(launched, who.launcher[work], events["wall"][work])
    called = HostCalls([], *(np.full(len(events), -1, np.int32) for _ in range(3)))
    costs = Costs(trace, has_device=bool(of_kinds(trace, Kind.KERNEL).any()))
    backends = np.array([bool(_BACKEND.match(name)) for name in trace.names] or [False])
    sums = {kind: _CallSums.zero(len(trace.names)) for kind in _LISTED}
    for rows, start in _pieces(trace):
        mine = events[rows]
        piece = _Piece(
            mine,
            _nest(start, np.ascontiguousarray(mine["wall"])),
            launched[rows],
            window.began(mine),
        )
        nearest = {kind: piece.nearest(kind) for kind in _LISTED}
        _place(called, rows, piece, nearest, backends)
        for kind in _LISTED:
            _add(sums[kind], kind, piece, nearest[kind])
        _add_costs(sums[Kind.OPERATOR], piece, costs)
    rows_of = (row for kind in _LISTED for row in _rows(trace, kind, sums[kind]))
    called.rows.extend(sorted(rows_of, key=lambda row: (-row.device_ns, -row.total_ns)))
    return called


@dataclass(frozen=True, eq=False)
class _Piece:
    """Events of threads between two moments at which nothing went on.

    Attributes:
        mine: EVENT_DTYPE [n].
        launched: int64 [n], ns of the device.
        counts: bool [n]: it is to be summed up.
    """

    mine: npt.NDArray[np.void]
    tree: _Nest
    launched: IntArray
    counts: BoolArray

    def nearest(self, kind: Kind) -> IntArray | None:
        """Return int64 [n]: the event itself or its nearest caller of this kind; -1: none.

        None: no event is of it.
        """
        of_it = self.mine["kind"] == kind
        return (
            self.tree.inherited(np.where(of_it, np.arange(len(of_it)), -1)) if of_it.any() else None
        )


def _pieces(trace: Trace) -> Iterator[tuple[IntArray, IntArray]]:
    """Return rows of what nests, with their begins.

    They are cut where nothing goes on once there are enough: they then fit in a cache. Threads are
    laid one after the other in time, so that a million of them are as quick as one.
    """
    events = trace.events
    host = np.array([track.device < 0 for track in trace.tracks] or [False])
    rows = np.flatnonzero(of_kinds(trace, Kind.RUNTIME, *_LISTED) & host[events["track"]])
    rows = rows[np.argsort(events["track"][rows], kind="stable")]
    if not len(rows):
        return
    tracks, first = np.unique(events["track"][rows], return_index=True)
    begin, end = events["start"][rows], events["start"][rows] + events["wall"][rows]
    length = np.maximum.reduceat(end, first) - begin[first] + 1
    fits = (np.cumsum(length.astype(float)) // _MAX_LAID_NS).astype(np.int64)
    for group in np.split(np.arange(len(tracks)), np.flatnonzero(np.diff(fits)) + 1):
        some = slice(
            first[group[0]], first[group[-1] + 1] if group[-1] + 1 < len(first) else len(rows)
        )
        shift = np.cumsum(np.append(0, length[group[:-1]])) - begin[first[group]]
        each = np.repeat(shift, np.diff(np.append(first[group], some.stop)))
        start = begin[some] + each
        reach = np.maximum.accumulate(end[some] + each)
        idle = np.flatnonzero(start[1:] > reach[:-1]) + 1
        wanted = np.searchsorted(idle, np.arange(_PIECE_EVENTS, len(start), _PIECE_EVENTS))
        cuts = np.unique(idle[wanted[wanted < len(idle)]])
        yield from zip(np.split(rows[some], cuts), np.split(start, cuts))


def _place(
    called: HostCalls,
    rows: IntArray,
    piece: _Piece,
    nearest: dict[Kind, IntArray | None],
    backends: BoolArray,
) -> None:
    """Note for each runtime call what it was made for."""
    mine = piece.mine
    launches = np.flatnonzero(mine["kind"] == Kind.RUNTIME)
    # what the operator says comes before what the range around it says
    for kind in (Kind.ANNOTATION, Kind.OPERATOR):
        around = nearest[kind]
        if around is None:
            continue
        have = launches[around[launches] >= 0]
        at = around[have]
        called.operator[rows[have]] = mine["name"][at]
        speaks = backends[mine["name"][at]]
        called.backend[rows[have[speaks]]] = mine["name"][at[speaks]]
        collective = mine["collective"][at] >= 0
        called.collective[rows[have[collective]]] = mine["collective"][at[collective]]
    collective = mine["collective"][launches] >= 0
    called.collective[rows[launches[collective]]] = mine["collective"][launches[collective]]


def _add(sums: _CallSums, kind: Kind, piece: _Piece, nearest: IntArray | None) -> None:
    if nearest is None:
        return
    mine, tree, launched = piece.mine, piece.tree, piece.launched
    chosen = np.flatnonzero((mine["kind"] == kind) & piece.counts)
    names = mine["name"][chosen]
    caller = np.where(tree.parent >= 0, nearest[tree.parent], -1)[chosen]
    first = (caller < 0) | (mine["name"][caller] != names)
    for target, values in (
        (sums.count, first),
        (sums.total, mine["wall"][chosen] * first),
        (sums.own, tree.own[chosen]),
        (sums.device, tree.total(launched)[chosen] * first),
    ):
        target += np.bincount(names, values, len(target)).astype(np.int64)


def _add_costs(sums: _CallSums, piece: _Piece, costs: Costs) -> None:
    flop, nbytes = costs.of(piece.mine)
    has = flop >= 0
    if not has.any():
        return
    # what it calls itself would be counted again
    counted = np.flatnonzero(has & piece.counts & (piece.tree.total(has.astype(np.int64)) == 1))
    took = piece.tree.total(piece.launched) if costs.has_device else piece.tree.wall
    names = piece.mine["name"][counted]
    for total, values in (
        (sums.flop, flop[counted]),
        (sums.nbytes, np.where(nbytes[counted] >= 0, nbytes[counted], np.nan)),
    ):
        total += np.bincount(names, values, len(total))
    sums.counted[:] += np.bincount(names, took[counted], len(sums.counted)).astype(np.int64)


def _rows(trace: Trace, kind: Kind, sums: _CallSums) -> Iterator[CallRow]:
    for name in np.flatnonzero(sums.count).tolist():
        flop = int(sums.flop[name]) or None
        nbytes = int(sums.nbytes[name]) if flop and np.isfinite(sums.nbytes[name]) else None
        count, total, own, device, counted = (
            int(part[name])
            for part in (sums.count, sums.total, sums.own, sums.device, sums.counted)
        )
        yield CallRow(trace.names[name], kind, count, total, own, device, flop, nbytes, counted)
