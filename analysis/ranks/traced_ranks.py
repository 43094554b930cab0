"""All ranks' traces together.

They tell transfer and waiting, and what late ranks were doing.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial

import numpy as np

from feedline.analysis.intervals import NONE, IntArray, union
from feedline.analysis.ranks import blame
from feedline.analysis.ranks.aligned_clocks import MIN_COMMON_ENDS, Alignment, align
from feedline.analysis.ranks.blame import StepBlame, behind_median
from feedline.analysis.ranks.communication import BEFORE_TRACE, LateRank
from feedline.analysis.ranks.comparison import describe_communication, mean_parts
from feedline.analysis.ranks.cross_rank import CrossRank, RankComparison, combine
from feedline.analysis.ranks.match import MISSING, CollectiveTable
from feedline.analysis.ranks.numbered_collectives import Numbering, numbered
from feedline.analysis.text.formatting import seconds
from feedline.analysis.traces.collectives import Collectives, RankClock
from feedline.analysis.traces.rank_trace import RankTrace
from feedline.analysis.traces.trace_budget import STEP_PARTS, StepBudget, with_waiting
from feedline.analysis.traces.trace_steps import WHOLE_TRACE

#: Part of a budget -> phase of a late rank, in the words of ranks/blame.py where the meaning is the
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
#: Phases in the words of a trace's budget.
_PHASE_WORDS = {"wait": "input", "other": "unexplained", BEFORE_TRACE: "before its trace"}
_SHOWN_RANKS = 8
#: ns: what an end is worth as a clock where too few are there to see how far they scatter: the most
#: that alignment on ends was off with three ranks over gloo (8 to 144 us).
_UNSEEN_BOUND = 144_000.0
#: What clocks of two machines differ by at most where anything sets them: NTP does better by far.
_CLOCKS_APART_NS = 1e9


def _before(
    together: CrossRank, traces: Mapping[int, RankTrace], kept: Mapping[int, IntArray]
) -> IntArray:
    """Split each rank's time before each collective, since its last one had ended.

    Args:
        together: the ranks, compared.
        traces: rank -> its trace.
        kept: as of Numbering.

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


def compare(traces: Mapping[int, RankTrace]) -> RankComparison | None:
    """Compare ranks. None: fewer than two, or none of them communicated.

    Args:
        traces: by rank, each one's number settled.
    """
    if len(traces) < 2 or not any(len(trace.collectives.table) for trace in traces.values()):
        return None
    numbering = numbered(traces)
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
    sentences = [
        _says(late, phases[late.rank], last, traces[late.rank].basis.whole) for late in lates[:1]
    ]
    return RankComparison(
        communication=describe_communication(together, lates),
        together=together,
        last=last,
        waiting=waiting,
        budgets={rank: _budget(traces[rank], spans) for rank, spans in waiting.items()},
        parts={rank.rank: mean_parts(together.partitions[rank.rank], 0) for rank in ordered},
        phases=phases,
        complete=complete,
        notes=[
            *numbering.notes,
            *_gaps(matched, traces, waiting),
            *together.alignment.notes,
            *sentences,
        ],
    )


def _aligned(
    ranks: Sequence[Collectives],
    matched: CollectiveTable,
    numbering: Numbering,
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


def _gaps(
    matched: CollectiveTable, traces: Mapping[int, RankTrace], waiting: Mapping[int, IntArray]
) -> list[str]:
    """Say which ranks are not compared, and which collectives some rank lacks."""
    absent = {rank for group in matched.groups for rank in group.ranks} - set(traces)
    missing = sorted(rank for rank in absent if rank >= 0)  # the others are not known by number
    notes = list(matched.notes)
    if absent:
        listed = f"{', '.join(map(str, missing[:_SHOWN_RANKS]))}{', ...' if len(missing) > _SHOWN_RANKS else ''}"
        who = (
            f"{len(missing)} of {len(missing) + len(traces)} ranks have no trace here ({listed})"
            if missing
            else "some groups have ranks that left no trace here"
        )
        notes = [
            f"{who}: which rank was late, and how much of a collective was transfer, is unknown",
            *matched.foreign.values(),
        ]
    if waiting and (absent or matched.foreign):
        notes.append(
            "waiting for a rank is a lower bound: it is counted only until the last of the "
            "compared ranks had begun"
        )
    return notes


def _late(
    numbering: Numbering, together: CrossRank, traces: Mapping[int, RankTrace]
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


def _says(late: LateRank, phases: Mapping[str, float], last: IntArray, whole: str) -> str:
    most = [
        f"{_PHASE_WORDS.get(phase, phase)} {seconds(took / late.steps)}"
        for phase, took in list(phases.items())[:3]
        if took > 0
    ]
    doing = f"; what took longer than on the others: {', '.join(most)}" if most else ""
    again = (
        "other ranks in other steps"
        if late.late_steps >= blame.FEWEST_STEPS
        else "too few to tell whether it is always this rank"
    )
    often = "the same rank each time" if late.persistent else again
    steps = f"{late.steps} of {late.all_steps} steps ({often})"
    return (
        f"the others waited for rank {late.rank} in {whole if whole == WHOLE_TRACE else steps}; "
        "it came last in "
        f"{int((last == late.rank).sum())} of {len(last)} collectives{doing}"
    )
