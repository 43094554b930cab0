"""All ranks' traces together.

They tell which collective is which, transfer and waiting, and what late ranks were doing.
"""

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial

import numpy as np

from feedline.analysis.formatting import seconds
from feedline.analysis.intervals import NONE, BoolArray, IntArray, union
from feedline.analysis.ranks import blame
from feedline.analysis.ranks.aligned_clocks import MIN_COMMON_ENDS, Alignment, align
from feedline.analysis.ranks.blame import StepBlame, behind_median
from feedline.analysis.ranks.communication import BEFORE_TRACE, Communication, LateRank, RankParts
from feedline.analysis.ranks.comparison import describe_communication, mean_parts
from feedline.analysis.ranks.cross_rank import CrossRank, combine
from feedline.analysis.ranks.match import MISSING, CollectiveTable
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
from feedline.analysis.traces.trace_budget import STEP_PARTS, StepBudget, with_waiting
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
_IN_A_STEP = 1 << 24  # more collectives than a step has: numbers are step * this + order
_SHARDED_OPERATIONS = ("all_gather", "reduce_scatter")
_UNSAID = (None, "", "coalesced")
#: Part of a budget -> phase of a late rank, in the words of comm/blame.py where the meaning is the
#: same.
_PHASES = {
    "input": "wait",
    "exposed_copy": "copy",
    "compute": "computing",
    "host_launch": "launching",
    "synchronisation": "synchronising",
    "exposed_transfer": "other communication",
    "waiting_for_rank": "other communication",
    "unexplained": "other",
}
_NS_PER_S = 1e9
_FEWEST_STEPS = 4  # as rules/late_rank.py
#: Phases in the words of a trace's budget.
_PHASE_WORDS = {"wait": "input", "other": "unexplained", BEFORE_TRACE: "before its trace"}
_SHOWN_RANKS = 8
#: ns: what an end is worth as a clock where too few are there to see how far they scatter: the most
#: that alignment on ends was off with three ranks over gloo (8 to 144 us).
_UNSEEN_BOUND = 144_000.0
#: What clocks of two machines differ by at most where anything sets them: NTP does better by far.
_CLOCKS_APART_NS = 1e9


@dataclass(frozen=True, eq=False)
class _Numbering:
    """The collectives of all ranks in the form that comm/ works on.

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
class _One:
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


def _numbered(ranks: Mapping[int, RankTrace]) -> _Numbering:
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
    ones = [_one(number, trace, world, by_step) for number, trace in sorted(ranks.items())]
    _send_recv(ones, notes)
    _own_groups(ones, world, notes)
    for rank in ones:
        _count(rank)
    _unequal(ones, notes)
    unix = all(trace.origin_ns for trace in ranks.values())
    since = {number: trace.origin_ns if unix else 0 for number, trace in ranks.items()}
    return _Numbering(
        [_collectives(rank, since[rank.number]) for rank in ones],
        {rank.number: np.flatnonzero(rank.keep) for rank in ones},
        since,
        notes,
    )


def _one(number: int, trace: RankTrace, world: int, by_step: bool) -> _One:
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
    return _One(
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


def _send_recv(ones: Sequence[_One], notes: list[str]) -> None:
    """Rename NCCL's SendRecv kernels where they carry out all_to_all.

    Those without an annotation count as that where every rank has as many.
    """
    counts = [Counter(what for what in rank.operations if what in BETWEEN_TWO) for rank in ones]
    total = counts[0]["send_recv"] if counts else 0
    if not total or len(ones) < 2 or any(count != Counter(send_recv=total) for count in counts):
        return
    notes.append(
        f"{total} SendRecv kernel{'s' * (total > 1)} without an annotation counted as all_to_all, "
        f"because every rank ran as many"
    )
    for rank in ones:
        rank.groups = [
            (name.replace("send_recv", "all_to_all"), ranks) for name, ranks in rank.groups
        ]
        rank.operations = [
            "all_to_all" if what == "send_recv" else what for what in rank.operations
        ]


def _own_groups(ones: Sequence[_One], world: int, notes: list[str]) -> None:
    """Fill in groups of which only name and size are known.

    Their ranks are those that have a group of that name, if there are not more of them.
    """
    members: dict[str, set[int]] = defaultdict(set)
    sizes: dict[str, int] = {}
    for rank in ones:
        for (name, ranks), row in zip(rank.groups, rank.trace.collectives.table["args"].tolist()):
            if not ranks:
                members[name].add(rank.number)
                sizes[name] = rank.trace.collectives.args[row].size or world
    many = {name for name, found in members.items() if len(found) > sizes[name]}
    for rank in ones:
        rank.keep &= np.array(
            [bool(ranks) or name not in many for name, ranks in rank.groups] or [], bool
        )
        rank.groups = [
            (name, ranks or _filled(members[name], sizes[name], world))
            for name, ranks in rank.groups
        ]
    notes += [f"several groups of {sizes[name]} ranks are named '{name}', and the traces do not "
              f"say which ranks each has: they are left out"
              for name in sorted(many)]  # fmt: skip


def _filled(known: set[int], size: int, world: int) -> tuple[int, ...]:
    """Return ranks of a group, those that left no trace by numbers that no rank has."""
    return (*sorted(known), *range(world, world + size - len(known)))


def _count(rank: _One) -> None:
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
            rank.sequence[row] = (key[2] + 1) * _IN_A_STEP + place
            begun[key] += 1


def _unequal(ones: Sequence[_One], notes: list[str]) -> None:
    """Leave out what some rank of the group has more of than another within a step."""
    counts: dict[tuple[str, tuple[int, ...], str, int], dict[int, int]] = defaultdict(
        lambda: defaultdict(int)
    )
    keys = [
        [
            (name, ranks, what, step)
            for (name, ranks), what, step in zip(rank.groups, rank.operations, rank.step.tolist())
        ]
        for rank in ones
    ]
    for of_rank, mine in zip(ones, keys):
        for row, key in enumerate(mine):
            if of_rank.sequence[row] >= _IN_A_STEP and key[3] >= 0:
                counts[key][of_rank.number] += 1
    present = {rank.number for rank in ones}
    odd = {
        key
        for key, found in counts.items()
        if len({found[rank] for rank in present & set(key[1])}) > 1
    }
    left = 0
    for of_rank, mine in zip(ones, keys):
        wrong = np.array([key in odd for key in mine] or [], bool)
        left += int((of_rank.keep & wrong).sum())
        of_rank.keep &= ~wrong
    if left:
        what = ", ".join(sorted({key[2] for key in odd})[:4])
        notes.append(f"{left} collectives ({what}) are left out: ranks have different numbers of "
                     f"them in a step, "
                     "and without sequence numbers they cannot be matched")  # fmt: skip


def _collectives(rank: _One, since: int) -> Collectives:
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
    )


def _backend(rank: _One, row: int) -> str:
    traced = rank.trace.collectives
    name = traced.names[int(traced.table["name"][row])].lower()
    return next(
        (known for known in ("gloo", "rccl", "nccl", "mpi", "ucc") if known in name), "unknown"
    )


def _bytes(rank: _One, row: int) -> int:
    """Return the full message; 0: the trace does not say."""
    index = int(rank.trace.collectives.table["args"][row])
    args = rank.trace.collectives.args[index] if index >= 0 else CollectiveArgs()
    most = max(args.elements_in or 0, args.elements_out or 0) * _ELEMENT_BYTES.get(
        args.dtype or "", 0
    )
    shard = rank.operations[row] in _SHARDED_OPERATIONS and args.elements_in == args.elements_out
    return most * len(rank.groups[row][1]) if shard else most


def _before(
    together: CrossRank, traces: Mapping[int, RankTrace], kept: Mapping[int, IntArray]
) -> IntArray:
    """Split each rank's time before each collective, since its last one had ended.

    Args:
        together: the ranks, compared.
        traces: rank -> its trace.
        kept: as of Numbered.

    Returns:
        int64 [m, ranks, parts], ns; MISSING where a rank did not take part.
    """
    spent = np.full((*together.matched.start.shape, len(STEP_PARTS)), MISSING)
    for column, rank in enumerate(together.ranks):
        row = together.matched.rows[column]
        there = row >= 0
        spent[row[there], column] = traces[rank.rank].collectives.before[kept[rank.rank][there]]
    return spent


def _excess(blamed: StepBlame, together: CrossRank, spent: IntArray) -> dict[str, IntArray]:
    """Return what the late rank of each step took longer for, by phase, than the median of others.

    It is over all collectives at which it was the last; what it was late with already when its
    trace began is BEFORE_TRACE.

    Args:
        blamed: the late rank of each step.
        together: the ranks, compared.
        spent: of ``_before``.

    Returns:
        phase -> int64 [steps], ns.
    """
    matched, met = together.matched, together.met
    excess = {
        phase: np.zeros(len(blamed.column), np.int64)
        for phase in (*dict.fromkeys(_PHASES.values()), BEFORE_TRACE)
    }
    step = together.ranks[0].step_at(matched.start[:, 0])
    row = np.flatnonzero(together.awaited & (step >= 0))
    row = row[met.last_column[row] == blamed.column[step[row]]]
    column = met.last_column[row]
    late = behind_median(met.start[row], column)
    sure = late > together.bound
    row, column, late = row[sure], column[sure], late[sure]
    left = late.copy()
    for number, part in enumerate(STEP_PARTS):
        more = behind_median(spent[row, :, number], column)
        np.add.at(excess[_PHASES[part]], step[row], more)
        left -= more
    firsts = np.array([_first(matched, column) for column in range(len(matched.ranks))], np.int64)
    began = row == firsts[column]
    np.add.at(excess[BEFORE_TRACE], step[row[began]], left[began])
    return excess


def _first(matched: CollectiveTable, column: int) -> int:
    """Return the first collective of a rank."""
    there = np.flatnonzero(matched.start[:, column] != MISSING)
    return int(there[matched.start[there, column].argmin()]) if len(there) else -1


@dataclass(frozen=True, eq=False)
class RankComparison:
    """What several traces say together.

    Attributes:
        communication: for the report.
        together: the ranks on one clock.
        last: int64 [m]: the rank that began last, by more than the bound after the median of the
            others, -1: none by so much; of the collectives that all ranks of their group left
            traces of, in order of start.
        waiting: rank -> a set (intervals.py), ns since RankTrace.origin_ns: a collective ran, and
            another rank had not begun it.
        budgets: rank -> its budget with ``waiting_for_rank``; only of ranks for which waiting is
            known.
        parts: by rank.
        phases: rank that was late -> phase -> seconds that it took longer than the median of the
            others, most first, over all steps.
        complete: every rank of every group left a trace: who was late can be said.
        notes: sentences for the report.
    """

    communication: Communication
    together: CrossRank
    last: IntArray
    waiting: dict[int, IntArray]
    budgets: dict[int, StepBudget]
    parts: dict[int, RankParts]
    phases: dict[int, dict[str, float]]
    complete: bool
    notes: list[str]


def compare(traces: Mapping[int, RankTrace]) -> RankComparison | None:
    """Compare ranks. None: fewer than two, or none of them communicated.

    Args:
        traces: by rank, each one's number settled.
    """
    if len(traces) < 2 or not any(len(trace.collectives.table) for trace in traces.values()):
        return None
    numbering = _numbered(traces)
    together = combine(numbering.ranks, partial(_aligned, numbering=numbering, traces=traces))
    ordered, matched = together.ranks, together.matched
    waiting = {
        rank.rank: _waiting(rank, column, together, numbering.since[rank.rank]) for column, rank in enumerate(ordered)
    } if np.isfinite(together.bound) else {}  # fmt: skip
    last = _last(together)
    complete = len(matched.complete) > 0 and {
        rank for group in matched.groups for rank in group.ranks
    } <= set(matched.ranks)
    lates, phases = (
        _late(numbering, together, traces) if complete and np.isfinite(together.bound) else ([], {})
    )
    sentences = [_says(late, phases[late.rank], last) for late in lates[:1]]
    return RankComparison(
        communication=describe_communication(together, lates),
        together=together,
        last=last,
        waiting=waiting,
        budgets={rank: _budget(traces[rank], spans) for rank, spans in waiting.items()},
        parts={rank.rank: mean_parts(together.partitions[rank.rank], 0) for rank in ordered},
        phases=phases,
        complete=complete,
        notes=[*numbering.notes, *_gaps(matched, waiting), *together.alignment.notes, *sentences],
    )


def _aligned(
    ranks: Sequence[Collectives],
    matched: CollectiveTable,
    numbering: _Numbering,
    traces: Mapping[int, RankTrace],
) -> Alignment:
    """Align clocks from the ends of collectives, of few ones too.

    What is left is that all ranks leave one at about the same time.
    """
    alignment = align(ranks, matched)
    if not np.isfinite(alignment.bound):
        few = _on_few_ends(matched)
        if few is None:
            return alignment
        alignment = few
    first, notes = traces[matched.ranks[0]], []
    bound = alignment.bound
    for rank, clock in zip(matched.ranks, alignment.clocks, strict=True):
        moved = (
            float(np.abs(clock.offset).max())
            if len(clock.offset) and numbering.since[rank]
            else 0.0
        )
        if (traces[rank].maker, traces[rank].source, traces[rank].origin_ns) == (
            "nsight",
            first.source,
            first.origin_ns,
        ):
            bound = max(bound, moved)
        if moved > _CLOCKS_APART_NS:
            notes.append(f"the collectives of ranks {matched.ranks[0]} and {rank} are "
                         f"{moved / _NS_PER_S:.3g} s apart on their own clocks: "
                         "the traces may be of different steps")  # fmt: skip
    return replace(alignment, bound=bound, notes=[*notes, *alignment.notes])


def _on_few_ends(matched: CollectiveTable) -> Alignment | None:
    """Align clocks of ranks with fewer collectives than ``align`` asks for.

    None: some rank has none in common, or enough of them, and they do not fit.
    """
    nothing = NONE[:, 0]
    clocks, bound = [RankClock(nothing, nothing, 0.0)], _UNSEEN_BOUND
    for column in range(1, len(matched.ranks)):
        both = matched.together & (matched.end[:, [0, column]] != MISSING).all(1)
        apart = matched.end[both, 0] - matched.end[both, column]
        if not 0 < len(apart) < MIN_COMMON_ENDS:
            return None
        middle = int(np.sort(apart)[len(apart) // 2])
        clocks.append(RankClock(matched.end[both, column][:1], np.array([middle]), _UNSEEN_BOUND))
        bound = max(bound, float(np.abs(apart - middle).max()))
    alignment = Alignment(clocks, bound, "collective ends", [])
    start, end = alignment.reference(matched.start), alignment.reference(matched.end)
    ends = np.where(end == MISSING, np.iinfo(np.int64).max, end).min(
        1, initial=np.iinfo(np.int64).max
    )
    met = (start.max(1, initial=MISSING) <= ends + bound) | ~matched.together
    return alignment if met.all() else None


def _last(together: CrossRank) -> IntArray:
    matched, met = together.matched, together.met
    rows = np.flatnonzero(matched.complete & matched.together)
    rows = rows[np.argsort(matched.start[rows].max(1, initial=MISSING), kind="stable")]
    column = met.last_column[rows]
    return np.where(
        behind_median(met.start[rows], column) > together.bound, np.array(matched.ranks)[column], -1
    )


def _waiting(collectives: Collectives, column: int, together: CrossRank, since: int) -> IntArray:
    """Return when a rank was in a collective that another one had not begun.

    Of those that some rank left no trace of: at least so long.
    """
    row = together.matched.rows[column]
    there = np.flatnonzero(row >= 0)
    there = there[together.matched.together[row[there]]]
    return union(
        collectives.table["start"][there] - since,
        together.arrivals[collectives.rank].last[there] - since,
    )


def _budget(trace: RankTrace, waiting: IntArray) -> StepBudget:
    table = trace.collectives.table
    return with_waiting(
        trace.budget,
        trace.collectives.hidden,
        union(table["start"], table["end"]) if len(table) else NONE,
        waiting,
    )


def _gaps(matched: CollectiveTable, waiting: Mapping[int, IntArray]) -> list[str]:
    missing = sorted(
        {rank for group in matched.groups for rank in group.ranks} - set(matched.ranks)
    )
    if not missing:
        return list(matched.notes)
    listed = f"{', '.join(map(str, missing[:_SHOWN_RANKS]))}{', ...' if len(missing) > _SHOWN_RANKS else ''}"
    notes = [
        f"{len(missing)} of {len(missing) + len(matched.ranks)} ranks have no trace here "
        f"({listed}): "
        "which rank was late, and how much of a collective was transfer, is unknown"
    ]
    if waiting:
        notes.append(
            "waiting for a rank is a lower bound: it is counted only until the last rank with a "
            "trace had begun"
        )
    return notes


def _late(
    numbering: _Numbering, together: CrossRank, traces: Mapping[int, RankTrace]
) -> tuple[list[LateRank], dict[int, dict[str, float]]]:
    """Return late ranks, and what each was doing in seconds over all steps."""
    sure = replace(together, awaited=together.awaited & together.matched.complete)
    blamed = blame.blame_steps(sure)
    blamed = replace(
        blamed, excess=_excess(blamed, sure, _before(together, traces, numbering.kept))
    )
    lates = [
        replace(late, whole_host=False) for late in blame.list_late_ranks(blamed, together.ranks)
    ]
    phases = {}
    for late in lates:
        mine = blamed.column == together.matched.ranks.index(late.rank)
        sums = {
            phase: float(values[mine].sum()) / _NS_PER_S for phase, values in blamed.excess.items()
        }
        phases[late.rank] = dict(sorted(sums.items(), key=lambda pair: -pair[1]))
    return lates, phases


def _says(late: LateRank, phases: Mapping[str, float], last: IntArray) -> str:
    most = [
        f"{_PHASE_WORDS.get(phase, phase)} {seconds(took / late.steps)}"
        for phase, took in list(phases.items())[:3]
        if took > 0
    ]
    doing = f"; what took longer than on the others: {', '.join(most)}" if most else ""
    again = (
        "other ranks in other steps"
        if late.late_steps >= _FEWEST_STEPS
        else "too few to tell whether it is always this rank"
    )
    often = "the same rank each time" if late.persistent else again
    return (
        f"the others waited for rank {late.rank} in {late.steps} of {late.all_steps} steps "
        f"({often}); it came last in "
        f"{int((last == late.rank).sum())} of {len(last)} collectives{doing}"
    )
