"""All ranks' traces together: transfer and waiting, who was late, and what that costs each budget."""

from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np

from feedline.analysis.comm import bandwidth, blame
from feedline.analysis.comm.clocks import FEWEST, Alignment, align
from feedline.analysis.comm.collectives import Collectives, RankClock
from feedline.analysis.comm.match import MISSING, Matched, match
from feedline.analysis.comm.model import Communication, LateRank, RankParts
from feedline.analysis.comm.partition import Meetings, Partition, meet, partition
from feedline.analysis.comm.summary import collective_kind, exposed, late_rank, means
from feedline.analysis.quantities import seconds
from feedline.analysis.timeline import IntArray
from feedline.analysis.traces.between import late
from feedline.analysis.traces.between.same import Numbered, numbered
from feedline.analysis.traces.budget import Budget, with_waiting
from feedline.analysis.traces.intervals import NONE, BoolArray, union
from feedline.analysis.traces.summary import RankTrace

GIGA = 1e9
FEWEST_STEPS = 4  # as rules/late_rank.py
SHOWN_KINDS, SHOWN_LATE, SHOWN_RANKS = 20, 8, 8
#: ns: what an end is worth as a clock where too few are there to see how far they scatter: the most that alignment on ends was off with
#: three ranks over gloo (8 to 144 us).
UNSEEN_BOUND = 144_000.0
#: What clocks of two machines differ by at most where anything sets them: NTP does better by far.
CLOCKS_APART_NS = 1e9


@dataclass(frozen=True, eq=False)
class Meeting:
    """The collectives that all ranks of their group left traces of, in order of start.

    Attributes:
        names: operation of each.
        step: int64 [m]: of the first rank; -1: before its first, or after its last.
        transfer: int64 [m], ns: the least that any rank spent in it: needs no clocks.
        waits: int64 [m, ranks], ns: from a rank's start until the last one's, 0 where it is not more than the bound; MISSING: not in it.
        last: int64 [m]: rank that began last, by more than the bound after the median of the others; -1: nobody by so much.
    """

    names: list[str]
    step: IntArray
    transfer: IntArray
    waits: IntArray
    last: IntArray


@dataclass(frozen=True, eq=False)
class Between:
    """What several traces say together.

    Attributes:
        communication: for the report.
        ranks: the columns of ``meetings.waits``.
        waiting: rank -> a set (intervals.py), ns since RankTrace.origin_ns: a collective ran, and another rank had not begun it.
        budgets: rank -> its budget with ``waiting_for_rank``; only for ranks of which that can be told.
        parts: by rank.
        phases: rank that was late -> phase -> seconds that it took longer than the median of the others, most first, over all steps.
        complete: every rank of every group left a trace: who was late can be said.
        notes: sentences for the report.
    """

    communication: Communication
    ranks: list[int]
    meetings: Meeting
    waiting: dict[int, IntArray]
    budgets: dict[int, Budget]
    parts: dict[int, RankParts]
    phases: dict[int, dict[str, float]]
    complete: bool
    notes: list[str]


def compare(traces: Mapping[int, RankTrace]) -> Between | None:
    """Compare ranks. None: fewer than two, or none of them communicated. ``traces``: by rank, each one's number settled."""
    if len(traces) < 2 or not any(len(trace.collectives.table) for trace in traces.values()):
        return None
    made = numbered(traces)
    matched = match(made.ranks)
    ordered = [one for rank in matched.ranks for one in made.ranks if one.rank == rank]
    alignment, notes = _aligned(made, ordered, matched, traces)
    met = meet(matched, alignment)
    whole = matched.whole & matched.together
    meetings = _meetings(ordered, matched, met, alignment.bound, whole)
    waiting = {
        one.rank: _waiting(one, column, matched, met, alignment.bound, made.since[one.rank]) for column, one in enumerate(ordered)
    } if np.isfinite(alignment.bound) else {}  # fmt: skip
    partitions = [partition(one, column, matched, met, alignment.bound) for column, one in enumerate(ordered)]
    complete = len(matched.whole) > 0 and {rank for group in matched.groups for rank in group.ranks} <= set(matched.ranks)
    lates, phases, told = _late(made, ordered, traces, matched, met, partitions, alignment, meetings) if complete else ([], {}, [])
    notes = [*made.notes, *_gaps(matched, waiting), *notes, *alignment.notes, *told]
    return Between(
        communication=_communication(matched, partitions, alignment, lates),
        ranks=matched.ranks,
        meetings=meetings,
        waiting=waiting,
        budgets={rank: _budget(traces[rank], spans) for rank, spans in waiting.items()},
        parts={part.rank: means(part, 0) for part in partitions},
        phases=phases,
        complete=complete,
        notes=notes,
    )


def _aligned(made: Numbered, ordered: list[Collectives], matched: Matched, traces: Mapping[int, RankTrace]) -> tuple[Alignment, list[str]]:
    """Clocks from the ends of collectives, of few ones too: what is left is that all ranks leave one at about the same time.

    Ranks of one file have one clock. How far the ends would move it says what they are worth: the bound is no smaller.
    """
    found = align(ordered, matched)
    if not np.isfinite(found.bound):
        few = _on_few_ends(matched)
        if few is None:
            return found, []
        found = few
    first, notes = traces[matched.ranks[0]], []
    bound = found.bound
    for rank, clock in zip(matched.ranks, found.clocks, strict=True):
        moved = float(np.abs(clock.offset).max()) if len(clock.offset) and made.since[rank] else 0.0
        if (traces[rank].maker, traces[rank].source, traces[rank].origin_ns) == ("nsight", first.source, first.origin_ns):
            bound = max(bound, moved)
        if moved > CLOCKS_APART_NS:
            notes.append(f"the collectives of ranks {matched.ranks[0]} and {rank} lie {moved / GIGA:.3g} s apart by their own clocks: "
                         "their traces may be of different steps")  # fmt: skip
    return replace(found, bound=bound), notes


def _on_few_ends(matched: Matched) -> Alignment | None:
    """Clocks of ranks with fewer collectives than clocks.align asks for. None: some rank has none in common, or enough of them, and they
    do not fit."""
    nothing = NONE[:, 0]
    clocks, bound = [RankClock(nothing, nothing, 0.0)], UNSEEN_BOUND
    for column in range(1, len(matched.ranks)):
        both = matched.together & (matched.end[:, [0, column]] != MISSING).all(1)
        apart = matched.end[both, 0] - matched.end[both, column]
        if not 0 < len(apart) < FEWEST:
            return None
        middle = int(np.sort(apart)[len(apart) // 2])
        clocks.append(RankClock(matched.end[both, column][:1], np.array([middle]), UNSEEN_BOUND))
        bound = max(bound, float(np.abs(apart - middle).max()))
    found = Alignment(clocks, bound, "collective ends", [])
    start, end = found.reference(matched.start), found.reference(matched.end)
    ends = np.where(end == MISSING, np.iinfo(np.int64).max, end).min(1, initial=np.iinfo(np.int64).max)
    met = (start.max(1, initial=MISSING) <= ends + bound) | ~matched.together
    return found if met.all() else None


def _meetings(ordered: list[Collectives], matched: Matched, met: Meetings, bound: float, whole: BoolArray) -> Meeting:
    rows = np.flatnonzero(whole)
    rows = rows[np.argsort(matched.start[rows].max(1, initial=MISSING), kind="stable")]
    took = np.where(matched.end[rows] != MISSING, matched.end[rows] - matched.start[rows], np.iinfo(np.int64).max)
    transfer = took.min(1, initial=np.iinfo(np.int64).max)
    step = ordered[0].step_at(matched.start[rows, 0])
    there = met.start[rows] != MISSING
    waits, last = np.where(there, 0, MISSING), np.full(len(rows), -1, np.int64)
    if np.isfinite(bound):
        behind = np.where(there, met.last[rows, None] - met.start[rows], 0)
        waits = np.where(there, np.where(behind > bound, behind, 0), MISSING)
        late_ns = late.behind(met.start[rows], met.last_column[rows])
        last = np.where(late_ns > bound, np.array(matched.ranks)[met.last_column[rows]], -1)
    return Meeting([matched.names[name] for name in matched.name[rows].tolist()], step, transfer, waits, last)


def _waiting(one: Collectives, column: int, matched: Matched, met: Meetings, bound: float, since: int) -> IntArray:
    """When a rank was in a collective that another one had not begun. Of those that some rank left no trace of: at least so long."""
    row = matched.rows[column]
    there = np.flatnonzero(row >= 0)
    there = there[matched.together[row[there]]]
    behind = met.last[row[there]] - met.start[row[there], column]
    start, end = one.table["start"][there], one.table["end"][there]
    return union(start - since, np.where(behind > bound, np.minimum(start + behind, end), start) - since)


def _budget(trace: RankTrace, waiting: IntArray) -> Budget:
    table = trace.collectives.table
    return with_waiting(trace.budget, trace.collectives.hidden, union(table["start"], table["end"]) if len(table) else NONE, waiting)


def _gaps(matched: Matched, waiting: Mapping[int, IntArray]) -> list[str]:
    missing = sorted({rank for group in matched.groups for rank in group.ranks} - set(matched.ranks))
    if not missing:
        return list(matched.notes)
    listed = f"{', '.join(map(str, missing[:SHOWN_RANKS]))}{', ...' if len(missing) > SHOWN_RANKS else ''}"
    notes = [
        f"{len(missing)} of {len(missing) + len(matched.ranks)} ranks left no trace ({listed}): "
        "who was late, and what of a collective was transfer, cannot be told"
    ]
    if waiting:
        notes.append("waiting for a rank is a lower bound: it counts only until the last of the ranks that are there had begun")
    return notes


def _late(
    made: Numbered,
    ordered: list[Collectives],
    traces: Mapping[int, RankTrace],
    matched: Matched,
    met: Meetings,
    partitions: list[Partition],
    alignment: Alignment,
    meetings: Meeting,
) -> tuple[list[LateRank], dict[int, dict[str, float]], list[str]]:
    """Late ranks, what each was doing in seconds over all steps, and that in words."""
    if not np.isfinite(alignment.bound):
        return [], {}, []
    sure = replace(matched, together=matched.together & matched.whole)
    blamed = blame.blame(ordered, partitions, sure, met, alignment.bound)
    spent = late.before(ordered, traces, made.kept, matched)
    more = late.excess(blamed, matched, met, spent, ordered[0], alignment.bound)
    blamed = replace(blamed, excess=more)
    found = blame.summary(blamed, ordered)
    phases = {}
    for one in found:
        mine = blamed.column == matched.ranks.index(one.rank)
        sums = {phase: float(values[mine].sum()) / GIGA for phase, values in more.items()}
        phases[one.rank] = dict(sorted(sums.items(), key=lambda pair: -pair[1]))
    return (
        [replace(late_rank(one, {}, None), whole_host=False) for one in found[:SHOWN_LATE]],
        phases,
        [_says(one, meetings) for one in found[:1]],
    )


def _says(one: blame.Late, meetings: Meeting) -> str:
    doing = ", ".join(f"{phase} {seconds(took)}" for phase, took in list(one.phases.items())[:3]) or "nothing that the traces show"
    always = "the same rank each time" if one.persistent else "other ranks in other steps" if one.steps[1] >= FEWEST_STEPS else ""
    often = f" ({always or 'too few to tell whether it always is'})"
    last = f"last in {int((meetings.last == one.rank).sum())} of {len(meetings.last)} collectives"
    return (
        f"rank {one.rank} was waited for in {one.steps[0]} of {one.steps[2]} steps{often}, {last}; "
        f"against the median of the others it took longer for: {doing}"
    )


def _communication(matched: Matched, partitions: list[Partition], alignment: Alignment, lates: list[LateRank]) -> Communication:
    found = bandwidth.kinds(matched, partitions, alignment.bound)
    network = bandwidth.network(found, matched, alignment.bound)
    return Communication(
        collectives=[collective_kind(kind) for kind in found[:SHOWN_KINDS]],
        clock_bound_s=alignment.bound / GIGA if np.isfinite(alignment.bound) else None,
        clocks=alignment.how,
        late=lates,
        network=network.says,
        network_share=network.share,
        what_if=[],
        nccl=[],
        unseen=[],
        exposed={str(part.rank): exposed(part, 0) for part in partitions},
    )
