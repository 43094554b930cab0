"""All ranks' traces together: transfer and waiting, which rank was late, and how much of each budget that takes."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial

import numpy as np

from feedline.analysis.formatting import seconds
from feedline.analysis.intervals import NONE, IntArray, union
from feedline.analysis.ranks import blame
from feedline.analysis.ranks.blame import behind
from feedline.analysis.ranks.clocks import FEWEST, Alignment, align
from feedline.analysis.ranks.cross_rank import CrossRank, combine
from feedline.analysis.ranks.match import MISSING, CollectiveTable
from feedline.analysis.ranks.model import BEFORE_TRACE, Communication, LateRank, RankParts
from feedline.analysis.ranks.summary import communication, means
from feedline.analysis.ranks.traced import late
from feedline.analysis.ranks.traced.numbering import Numbered, numbered
from feedline.analysis.traces.budget import Budget, with_waiting
from feedline.analysis.traces.collectives import Collectives, RankClock
from feedline.analysis.traces.summary import RankTrace

_GIGA = 1e9
_FEWEST_STEPS = 4  # as rules/late_rank.py
#: Phases in the words of a trace's budget.
_NAMES = {"wait": "input", "other": "unexplained", BEFORE_TRACE: "before its trace"}
_SHOWN_RANKS = 8
#: ns: what an end is worth as a clock where too few are there to see how far they scatter: the most that alignment on ends was off with
#: three ranks over gloo (8 to 144 us).
_UNSEEN_BOUND = 144_000.0
#: What clocks of two machines differ by at most where anything sets them: NTP does better by far.
_CLOCKS_APART_NS = 1e9


@dataclass(frozen=True, eq=False)
class Between:
    """What several traces say together.

    Attributes:
        communication: for the report.
        together: the ranks on one clock.
        last: int64 [m]: the rank that began last, by more than the bound after the median of the others, -1: none by so much; of the
            collectives that all ranks of their group left traces of, in order of start.
        waiting: rank -> a set (intervals.py), ns since RankTrace.origin_ns: a collective ran, and another rank had not begun it.
        budgets: rank -> its budget with ``waiting_for_rank``; only of ranks for which waiting is known.
        parts: by rank.
        phases: rank that was late -> phase -> seconds that it took longer than the median of the others, most first, over all steps.
        complete: every rank of every group left a trace: who was late can be said.
        notes: sentences for the report.
    """

    communication: Communication
    together: CrossRank
    last: IntArray
    waiting: dict[int, IntArray]
    budgets: dict[int, Budget]
    parts: dict[int, RankParts]
    phases: dict[int, dict[str, float]]
    complete: bool
    notes: list[str]


def compare(traces: Mapping[int, RankTrace]) -> Between | None:
    """Compare ranks. None: fewer than two, or none of them communicated.

    Args:
        traces: by rank, each one's number settled.
    """
    if len(traces) < 2 or not any(len(trace.collectives.table) for trace in traces.values()):
        return None
    made = numbered(traces)
    together = combine(made.ranks, partial(_aligned, made=made, traces=traces))
    ordered, matched = together.ranks, together.matched
    waiting = {
        one.rank: _waiting(one, column, together, made.since[one.rank]) for column, one in enumerate(ordered)
    } if np.isfinite(together.bound) else {}  # fmt: skip
    last = _last(together)
    complete = len(matched.whole) > 0 and {rank for group in matched.groups for rank in group.ranks} <= set(matched.ranks)
    lates, phases = _late(made, together, traces) if complete and np.isfinite(together.bound) else ([], {})
    told = [_says(one, phases[one.rank], last) for one in lates[:1]]
    return Between(
        communication=communication(together, lates),
        together=together,
        last=last,
        waiting=waiting,
        budgets={rank: _budget(traces[rank], spans) for rank, spans in waiting.items()},
        parts={one.rank: means(together.partitions[one.rank], 0) for one in ordered},
        phases=phases,
        complete=complete,
        notes=[*made.notes, *_gaps(matched, waiting), *together.alignment.notes, *told],
    )


def _aligned(ranks: Sequence[Collectives], matched: CollectiveTable, made: Numbered, traces: Mapping[int, RankTrace]) -> Alignment:
    """Clocks from the ends of collectives, of few ones too: what is left is that all ranks leave one at about the same time.

    Ranks of one file have one clock. How far the ends would move it shows how well they fit: the bound is at least that.
    """
    found = align(ranks, matched)
    if not np.isfinite(found.bound):
        few = _on_few_ends(matched)
        if few is None:
            return found
        found = few
    first, notes = traces[matched.ranks[0]], []
    bound = found.bound
    for rank, clock in zip(matched.ranks, found.clocks, strict=True):
        moved = float(np.abs(clock.offset).max()) if len(clock.offset) and made.since[rank] else 0.0
        if (traces[rank].maker, traces[rank].source, traces[rank].origin_ns) == ("nsight", first.source, first.origin_ns):
            bound = max(bound, moved)
        if moved > _CLOCKS_APART_NS:
            notes.append(f"the collectives of ranks {matched.ranks[0]} and {rank} are {moved / _GIGA:.3g} s apart on their own clocks: "
                         "the traces may be of different steps")  # fmt: skip
    return replace(found, bound=bound, notes=[*notes, *found.notes])


def _on_few_ends(matched: CollectiveTable) -> Alignment | None:
    """Clocks of ranks with fewer collectives than clocks.align asks for. None: some rank has none in common, or enough of them, and they
    do not fit."""
    nothing = NONE[:, 0]
    clocks, bound = [RankClock(nothing, nothing, 0.0)], _UNSEEN_BOUND
    for column in range(1, len(matched.ranks)):
        both = matched.together & (matched.end[:, [0, column]] != MISSING).all(1)
        apart = matched.end[both, 0] - matched.end[both, column]
        if not 0 < len(apart) < FEWEST:
            return None
        middle = int(np.sort(apart)[len(apart) // 2])
        clocks.append(RankClock(matched.end[both, column][:1], np.array([middle]), _UNSEEN_BOUND))
        bound = max(bound, float(np.abs(apart - middle).max()))
    found = Alignment(clocks, bound, "collective ends", [])
    start, end = found.reference(matched.start), found.reference(matched.end)
    ends = np.where(end == MISSING, np.iinfo(np.int64).max, end).min(1, initial=np.iinfo(np.int64).max)
    met = (start.max(1, initial=MISSING) <= ends + bound) | ~matched.together
    return found if met.all() else None


def _last(together: CrossRank) -> IntArray:
    matched, met = together.matched, together.met
    rows = np.flatnonzero(matched.whole & matched.together)
    rows = rows[np.argsort(matched.start[rows].max(1, initial=MISSING), kind="stable")]
    column = met.last_column[rows]
    return np.where(behind(met.start[rows], column) > together.bound, np.array(matched.ranks)[column], -1)


def _waiting(one: Collectives, column: int, together: CrossRank, since: int) -> IntArray:
    """When a rank was in a collective that another one had not begun. Of those that some rank left no trace of: at least so long."""
    row = together.matched.rows[column]
    there = np.flatnonzero(row >= 0)
    there = there[together.matched.together[row[there]]]
    return union(one.table["start"][there] - since, together.arrivals[one.rank].last[there] - since)


def _budget(trace: RankTrace, waiting: IntArray) -> Budget:
    table = trace.collectives.table
    return with_waiting(trace.budget, trace.collectives.hidden, union(table["start"], table["end"]) if len(table) else NONE, waiting)


def _gaps(matched: CollectiveTable, waiting: Mapping[int, IntArray]) -> list[str]:
    missing = sorted({rank for group in matched.groups for rank in group.ranks} - set(matched.ranks))
    if not missing:
        return list(matched.notes)
    listed = f"{', '.join(map(str, missing[:_SHOWN_RANKS]))}{', ...' if len(missing) > _SHOWN_RANKS else ''}"
    notes = [
        f"{len(missing)} of {len(missing) + len(matched.ranks)} ranks have no trace here ({listed}): "
        "which rank was late, and how much of a collective was transfer, is unknown"
    ]
    if waiting:
        notes.append("waiting for a rank is a lower bound: it is counted only until the last rank with a trace had begun")
    return notes


def _late(made: Numbered, together: CrossRank, traces: Mapping[int, RankTrace]) -> tuple[list[LateRank], dict[int, dict[str, float]]]:
    """Late ranks, and what each was doing in seconds over all steps."""
    sure = replace(together, awaited=together.awaited & together.matched.whole)
    blamed = blame.blame(sure)
    blamed = replace(blamed, excess=late.excess(blamed, sure, late.before(together, traces, made.kept)))
    found = [replace(one, whole_host=False) for one in blame.summary(blamed, together.ranks)]
    phases = {}
    for one in found:
        mine = blamed.column == together.matched.ranks.index(one.rank)
        sums = {phase: float(values[mine].sum()) / _GIGA for phase, values in blamed.excess.items()}
        phases[one.rank] = dict(sorted(sums.items(), key=lambda pair: -pair[1]))
    return found, phases


def _says(one: LateRank, phases: Mapping[str, float], last: IntArray) -> str:
    most = [f"{_NAMES.get(phase, phase)} {seconds(took / one.steps)}" for phase, took in list(phases.items())[:3] if took > 0]
    doing = f"; what took longer than on the others: {', '.join(most)}" if most else ""
    again = "other ranks in other steps" if one.late_steps >= _FEWEST_STEPS else "too few to tell whether it is always this rank"
    often = "the same rank each time" if one.persistent else again
    return (
        f"the others waited for rank {one.rank} in {one.steps} of {one.all_steps} steps ({often}); it came last in "
        f"{int((last == one.rank).sum())} of {len(last)} collectives{doing}"
    )
