"""Give every collective of several traces the same group and number on all ranks."""

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from feedline.analysis.intervals import BoolArray, IntArray
from feedline.analysis.ranks.partition import BLOCKED
from feedline.analysis.traces.collectives import (
    BETWEEN_TWO,
    COLLECTIVE_DTYPE,
    Collectives,
    ProcessGroup,
    RankClock,
    operation,
)
from feedline.analysis.traces.kernel_names import operation_of
from feedline.analysis.traces.rank_trace import RankTrace
from feedline.analysis.traces.trace_columns import CollectiveArgs

#: torch's names of element types (c10::toString), as Kineto has them, and bytes of each.
_ELEMENT_BYTES = {
    **dict.fromkeys(("Double", "Long", "ComplexFloat", "UInt64"), 8),
    **dict.fromkeys(("Float", "Int", "ComplexHalf", "UInt32"), 4),
    **dict.fromkeys(("Half", "BFloat16", "Short", "UInt16"), 2),
    **dict.fromkeys(
        (
            "Byte",
            "Char",
            "Bool",
            "Float8_e4m3fn",
            "Float8_e5m2",
            "Float8_e4m3fnuz",
            "Float8_e5m2fnuz",
        ),
        1,
    ),
    "ComplexDouble": 16,
}
#: More collectives than a step has: numbers are (step + 2) * this + place, so that those before the
#: first step, -1, are above all numbers of a trace's own.
_IN_A_STEP = 1 << 24
_SHARDED_OPERATIONS = ("all_gather", "reduce_scatter")
_UNSAID = (None, "", "coalesced")


@dataclass(frozen=True, eq=False)
class Numbering:
    """The collectives of all ranks in the form that ranks are compared in.

    Attributes:
        ranks: ascending. Times are ns since each rank's ``since``.
        kept: rank -> int64 [k]: for each entry of its table, the row in
            RankTrace.collectives.table.
        since: rank -> ns: of Unix time where all traces have it, else 0.
        notes: what could not be matched, and what was assumed.
    """

    ranks: list[Collectives]
    kept: dict[int, IntArray]
    since: dict[int, int]
    notes: list[str]


@dataclass(eq=False)
class _RankTable:
    """One rank's table with what each entry is."""

    number: int
    trace: RankTrace
    operations: list[str]
    groups: list[tuple[str, tuple[int, ...]]]
    sequence: IntArray
    step: IntArray
    keep: BoolArray = field(init=False)

    def __post_init__(self) -> None:
        self.keep = np.ones(len(self.operations), bool)


def numbered(ranks: Mapping[int, RankTrace]) -> Numbering:
    """Give every collective a group and a number that are the same on all ranks.

    The number is the trace's own; else its place among those of the same operation, group and
    stream in its step. Where ranks have unequally many, they cannot be matched: they are left out,
    with a note.
    """
    notes: list[str] = []
    world = max(
        [*(trace.world_size or 0 for trace in ranks.values()), *(number + 1 for number in ranks)],
        default=0,
    )
    by_step = len({len(trace.steps) for trace in ranks.values()}) == 1
    tables = [_rank_table(number, trace, world, by_step) for number, trace in sorted(ranks.items())]
    _send_recv(tables, notes)
    _own_groups(tables, world, notes)
    for rank in tables:
        _count(rank)
    _unequal(tables, notes)
    unix = all(trace.origin_ns for trace in ranks.values())
    since = {number: trace.origin_ns if unix else 0 for number, trace in ranks.items()}
    return Numbering(
        [_collectives(rank, since[rank.number]) for rank in tables],
        {rank.number: np.flatnonzero(rank.keep) for rank in tables},
        since,
        notes,
    )


def _rank_table(number: int, trace: RankTrace, world: int, by_step: bool) -> _RankTable:
    collectives = trace.collectives
    table = collectives.table
    args = [
        collectives.args[row] if row >= 0 else CollectiveArgs() for row in table["args"].tolist()
    ]
    collective_names = [
        collectives.names[row].partition(":")[2] if row >= 0 else None
        for row in table["said"].tolist()
    ]
    names = [collectives.names[row] for row in table["name"].tolist()]
    operations = [
        _operation(collective, told, name)
        for collective, told, name in zip(args, collective_names, names)
    ]
    # numbers differ between ranks
    streams = {
        stream: place for place, stream in enumerate(dict.fromkeys(table["stream"].tolist()))
    }
    groups = [
        _group(value, trace, world, f"{what} on stream {streams[stream]}")
        for value, what, stream in zip(args, operations, table["stream"].tolist())
    ]
    sequence = np.array(
        [-1 if collective.sequence is None else collective.sequence for collective in args],
        np.int64,
    )
    at = np.where(table["launched"] >= 0, table["launched"], table["start"])
    step = (
        np.searchsorted(trace.steps.edges, at, "right") - 1
        if by_step and len(trace.steps)
        else np.zeros(len(table), np.int64)
    )
    return _RankTable(
        number, trace, operations, groups, sequence, np.minimum(step, max(len(trace.steps) - 1, 0))
    )


def _operation(args: CollectiveArgs, name_of_range: str | None, name: str) -> str:
    operation_name = next(
        (candidate for candidate in (args.operation, name_of_range) if candidate not in _UNSAID),
        None,
    )
    return (operation(operation_name) if operation_name else operation_of(name) or operation(name))[
        :80
    ]


def _group(
    args: CollectiveArgs, trace: RankTrace, world: int, otherwise: str
) -> tuple[str, tuple[int, ...]]:
    """Return (name, ranks).

    Without ranks, it is all that have a group of this name.
    """
    if args.group is None:
        return otherwise, tuple(range(world))
    ranks = (
        args.ranks
        or trace.groups.get(args.group)
        or (tuple(range(world)) if args.size in (None, world) else ())
    )
    return args.group, tuple(sorted(ranks))


def _send_recv(tables: Sequence[_RankTable], notes: list[str]) -> None:
    """Rename NCCL's SendRecv kernels where they carry out all_to_all.

    Those without an annotation count as that where every rank has as many.
    """
    counts = [Counter(what for what in rank.operations if what in BETWEEN_TWO) for rank in tables]
    total = counts[0]["send_recv"] if counts else 0
    if not total or len(tables) < 2 or any(count != Counter(send_recv=total) for count in counts):
        return
    notes.append(
        f"{total} SendRecv kernel{'s' * (total > 1)} without an annotation counted as all_to_all, "
        f"because every rank ran as many"
    )
    for rank in tables:
        rank.groups = [
            (name.replace("send_recv", "all_to_all"), ranks) for name, ranks in rank.groups
        ]
        rank.operations = [
            "all_to_all" if what == "send_recv" else what for what in rank.operations
        ]


def _own_groups(tables: Sequence[_RankTable], world: int, notes: list[str]) -> None:
    """Fill in groups of which only name and size are known.

    Their ranks are those that have a group of that name, if there are not more of them.
    """
    members: dict[str, set[int]] = defaultdict(set)
    sizes: dict[str, int] = {}
    for rank in tables:
        for (name, ranks), row in zip(rank.groups, rank.trace.collectives.table["args"].tolist()):
            if not ranks:
                members[name].add(rank.number)
                sizes[name] = rank.trace.collectives.args[row].size or world
    many = {name for name, found in members.items() if len(found) > sizes[name]}
    for rank in tables:
        rank.keep &= np.array(
            [bool(ranks) or name not in many for name, ranks in rank.groups] or [], bool
        )
        rank.groups = [
            (name, ranks or _filled(members[name], sizes[name])) for name, ranks in rank.groups
        ]
    notes += [f"several groups of {sizes[name]} ranks are named '{name}', and the traces do not "
              f"say which ranks each has: they are left out"
              for name in sorted(many)]  # fmt: skip


def _filled(known: set[int], size: int) -> tuple[int, ...]:
    """Return ranks of a group, those that left no trace by negative numbers, which no rank has."""
    return (*range(len(known) - size, 0), *sorted(known))


def _count(rank: _RankTable) -> None:
    """Give numbers to what the trace did not number: by place within operation, group and step.

    Before the first step the last ones are the common ones.
    """
    begun: Counter[tuple[str, str, int]] = Counter()
    keys = [
        (what, name, step)
        for what, (name, _), step in zip(rank.operations, rank.groups, rank.step.tolist())
    ]
    totals = Counter(keys)
    for row, key in enumerate(keys):
        if rank.sequence[row] < 0:
            place = begun[key] if key[2] >= 0 else _IN_A_STEP - totals[key] + begun[key]
            rank.sequence[row] = (key[2] + 2) * _IN_A_STEP + place
            begun[key] += 1


def _unequal(tables: Sequence[_RankTable], notes: list[str]) -> None:
    """Leave out what some rank of the group has more of than another within a step."""
    counts: dict[tuple[str, tuple[int, ...], str, int], dict[int, int]] = defaultdict(
        lambda: defaultdict(int)
    )
    keys = [
        [
            (name, ranks, what, step)
            for (name, ranks), what, step in zip(rank.groups, rank.operations, rank.step.tolist())
        ]
        for rank in tables
    ]
    for of_rank, mine in zip(tables, keys):
        for row, key in enumerate(mine):
            if of_rank.sequence[row] >= _IN_A_STEP and key[3] >= 0:
                counts[key][of_rank.number] += 1
    present = {rank.number for rank in tables}
    odd = {
        key
        for key, found in counts.items()
        if len({found[rank] for rank in present & set(key[1])}) > 1
    }
    left = 0
    for of_rank, mine in zip(tables, keys):
        wrong = np.array([key in odd for key in mine] or [], bool)
        left += int((of_rank.keep & wrong).sum())
        of_rank.keep &= ~wrong
    if left:
        what = ", ".join(sorted({key[2] for key in odd})[:4])
        notes.append(f"{left} collectives ({what}) are left out: ranks have different numbers of "
                     f"them in a step, "
                     "and without sequence numbers they cannot be matched")  # fmt: skip


def _collectives(rank: _RankTable, since: int) -> Collectives:
    traced, rows = rank.trace.collectives, np.flatnonzero(rank.keep)
    table = np.zeros(len(rows), COLLECTIVE_DTYPE)
    groups: dict[tuple[str, str, tuple[int, ...]], int] = {}
    names: dict[str, int] = {}
    for place, row in enumerate(rows.tolist()):
        (name, ranks), what = rank.groups[row], rank.operations[row]
        key = (
            name
            if what in name
            else f"{name} {what}"
            if rank.sequence[row] >= _IN_A_STEP
            else name,
            _backend(rank, row),
            ranks,
        )
        table["group"][place] = groups.setdefault(key, len(groups))
        table["name"][place] = names.setdefault(what, len(names))
        table["nbytes"][place] = _bytes(rank, row)
    table["start"], table["end"] = (
        traced.table["start"][rows] + since,
        traced.table["end"][rows] + since,
    )
    table["sequence"] = rank.sequence[rows]
    nothing, edges = np.zeros(0, np.int64), rank.trace.budget.edges + since
    return Collectives(
        rank=rank.number,
        host="unknown",
        table=table,
        groups=[ProcessGroup(name, ranks, backend) for name, backend, ranks in groups],
        names=list(names),
        dtypes=["unknown"],
        steps=np.stack([edges[:-1], edges[1:]], 1),
        stages={"backward": traced.hidden + since, BLOCKED: np.zeros((0, 2), np.int64)},
        clock=RankClock(nothing, nothing, np.inf),
        traced=True,
    )


def _backend(rank: _RankTable, row: int) -> str:
    traced = rank.trace.collectives
    name = traced.names[int(traced.table["name"][row])].lower()
    return next(
        (known for known in ("gloo", "rccl", "nccl", "mpi", "ucc") if known in name), "unknown"
    )


def _bytes(rank: _RankTable, row: int) -> int:
    """Return the full message; 0: the trace does not say."""
    index = int(rank.trace.collectives.table["args"][row])
    args = rank.trace.collectives.args[index] if index >= 0 else CollectiveArgs()
    most = max(args.elements_in or 0, args.elements_out or 0) * _ELEMENT_BYTES.get(
        args.dtype or "", 0
    )
    shard = rank.operations[row] in _SHARDED_OPERATIONS and args.elements_in == args.elements_out
    return most * len(rank.groups[row][1]) if shard else most
