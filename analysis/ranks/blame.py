"""Step by step, which rank was late, and with which of its phases."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from feedline.analysis.intervals import BoolArray, IntArray, overlap
from feedline.analysis.measure.stages import PHASE_OF
from feedline.analysis.ranks.communication import LateRank
from feedline.analysis.ranks.cross_rank import CrossRank
from feedline.analysis.ranks.match import MISSING, CollectiveTable
from feedline.analysis.ranks.partition import BACKWARD, BLOCKED, without_holes
from feedline.analysis.traces.collectives import UNKNOWN_HOST, Collectives, operation

#: Which phase claims a moment first, where spans nest: a copy inside a forward, a forward inside a
#: backward (checkpointing).
_INNER_FIRST = ("checkpoint", "compile", "copy", "wait", "forward", "optimizer", "backward")
_OTHER = "other"  # the phase of time that no stage claims

_BEHIND = 256  # collectives to look back for the last moment that all ranks had in common

#: A rank is late persistently if it is to blame for this share of the late steps, and far more
#: often than chance would have it. With less, other ranks cost a quarter of the waiting or more:
#: two that collect garbage in turns share it by 58 to 42 %.
PERSISTENT_SHARE = 0.75
FEWEST_STEPS = 4  # with fewer, no rank is called late persistently
#: Steps in which lateness costs: the fewest that hold this share of the waiting, and others down to
#: that part of the least of them.
_COSTLY_SHARE, _COSTLY_LEAST = 0.9, 0.5
_CHANCE_SIGMAS = 2.0


@dataclass(frozen=True)
class StepBlame:
    """Per step, on the numbering of the first rank's steps.

    Attributes:
        ranks: rank of each column.
        column: int64 [steps]: the late rank; -1: none, by less than the error of the clocks, or
            where lateness costs next to nothing.
        late: int64 [steps], ns: how much later it began than the median of the others.
        waited: int64 [steps], ns: waiting for it, mean over the other ranks.
        excess: phase -> int64 [steps], ns: how much more of this phase it had than the median of
            the others, since all were last together.
        row: int64 [steps]: the row of CollectiveTable at which it was latest; -1: no rank was late.
    """

    ranks: list[int]
    column: IntArray
    late: IntArray
    waited: IntArray
    excess: dict[str, IntArray]
    row: IntArray


def blame_steps(together: CrossRank, first: int = 0) -> StepBlame:
    """Find the late rank of each step in which lateness costs.

    Args:
        together: the ranks, compared.
        first: steps before it do not say what costs.
    """
    ranks, matched, bound = together.ranks, together.matched, together.bound
    steps = len(ranks[0].steps)
    waited = np.zeros((steps, len(ranks)), np.int64)
    for column, rank in enumerate(ranks):
        number = _numbering(rank, column, matched, ranks[0])
        known = number >= 0
        np.add.at(waited, number[known], together.partitions[rank.rank].blamed[known])
    waited //= max(len(ranks) - 1, 1)
    most = waited.argmax(1) if steps else np.zeros(0, np.int64)
    row, late = _decisive(together, most)
    guilty = (late > bound) & (waited[np.arange(steps), most] > 0)
    guilty[first:] &= _costly(np.where(guilty, waited[np.arange(steps), most], 0)[first:])
    culprit = np.where(guilty, most, -1)
    row = np.where(guilty, row, -1)
    excess = _excess(ranks, matched, row, culprit)
    mean = np.where(guilty, waited[np.arange(steps), most], 0)
    return StepBlame(matched.ranks, culprit, np.where(guilty, late, 0), mean, excess, row)


def _numbering(
    collectives: Collectives, column: int, matched: CollectiveTable, reference: Collectives
) -> IntArray:
    """Find for each step of a rank the step of the reference rank with the same collectives.

    -1: none.

    Args:
        collectives: the rank's collectives.
        column: of the rank in ``matched``, whose first column is the reference.
        matched: those of all ranks.
        reference: collectives of the reference rank.
    """
    numbers = np.full(len(collectives.steps), -1, np.int64)
    if column < 0:
        return numbers
    row = matched.rows[column]
    there = (
        (row >= 0) & (matched.start[np.maximum(row, 0), 0] != MISSING)
        if len(row)
        else np.zeros(0, bool)
    )
    theirs = reference.step_at(matched.start[row[there], 0])
    mine = collectives.step_at(collectives.table["start"][there])
    known = (theirs >= 0) & (mine >= 0)
    for step in np.unique(mine[known]).tolist():
        numbers[step] = int(np.median(theirs[known & (mine == step)]))
    return numbers


def _costly(waited: IntArray) -> BoolArray:
    """Return bool [steps]: where lateness costs.

    In most steps some rank is late by a little, and which one says nothing.

    Args:
        waited: int64 [steps], ns: waiting for the late rank.
    """
    ordered = np.sort(waited)[::-1]
    enough = (
        int(np.searchsorted(np.cumsum(ordered), _COSTLY_SHARE * waited.sum())) if len(waited) else 0
    )
    return (
        waited > 0
        if enough >= len(ordered)
        else (waited > 0) & (waited >= _COSTLY_LEAST * ordered[enough])
    )


def _decisive(together: CrossRank, column: IntArray) -> tuple[IntArray, IntArray]:
    """Return the collective of each step at which its rank was latest, and by how much.

    Against the median of the others; -1 without one.
    """
    met = together.met
    rows, lates = np.full(len(column), -1, np.int64), np.zeros(len(column), np.int64)
    step = np.where(together.awaited, together.ranks[0].step_at(together.matched.start[:, 0]), -1)
    row = np.flatnonzero((step >= 0) & ((met.start != MISSING).sum(1) > 1))
    row = row[met.last_column[row] == column[step[row]]]
    late = behind_median(met.start[row], met.last_column[row])
    order = np.lexsort((-late, step[row]))
    number, best = np.unique(step[row][order], return_index=True)
    rows[number], lates[number] = row[order][best], late[order][best]
    return rows, lates


def behind_median(values: IntArray, column: IntArray) -> IntArray:
    """Return how much more one column has than the median of the others, per row.

    Of two in the middle the lower one counts, so that whole ns stay whole.

    Args:
        values: int64 [n, ranks], MISSING where there is none.
        column: int64 [n].
    """
    at = np.arange(len(values))
    others = values.copy()
    others[at, column] = MISSING
    ordered = np.sort(others, 1)  # MISSING is the smallest number
    absent = (others == MISSING).sum(1)
    middle = ordered[
        at, np.minimum(absent + (values.shape[1] - absent - 1) // 2, values.shape[1] - 1)
    ]
    return np.asarray(np.where(middle == MISSING, 0, values[at, column] - middle), np.int64)


def _excess(
    ranks: Sequence[Collectives], matched: CollectiveTable, row: IntArray, column: IntArray
) -> dict[str, IntArray]:
    ongoing = _ongoing(ranks[0], matched)
    begin = (
        np.stack([_together(matched, ongoing, int(number)) for number in row])
        if len(row)
        else np.zeros((0, len(ranks)), np.int64)
    )
    spans = [_phase_spans(rank) for rank in ranks]
    spent = {
        phase: np.zeros((len(row), len(ranks)), np.int64)
        for phase in [
            *dict.fromkeys(phase for spans_of_rank in spans for phase in spans_of_rank),
            _OTHER,
        ]
    }
    for number, rank in enumerate(ranks):
        until = (
            np.where(row >= 0, matched.start[np.maximum(row, 0), number], MISSING)
            if len(row)
            else row
        )
        since = np.where(begin[:, number] == MISSING, _step_start(rank, until), begin[:, number])
        known = (until != MISSING) & (since != MISSING) & (until > since)
        since, until = np.where(known, since, 0), np.where(known, until, 0)
        left = until - since
        for phase, pieces in spans[number].items():
            took = overlap(since, until, pieces[:, 0], pieces[:, 1])
            spent[phase][:, number] = took
            left = left - took
        spent[_OTHER][:, number] = left
    return {
        phase: np.where(column >= 0, behind_median(values, np.maximum(column, 0)), 0)
        for phase, values in spent.items()
    }


def _phase_spans(collectives: Collectives) -> dict[str, IntArray]:
    """Return phase -> int64 [k, 2], ns, own time.

    Spans are disjoint and in order, within a phase and between them.
    """
    together: dict[str, list[IntArray]] = {}
    for stage, spans in collectives.stages.items():
        if stage != BLOCKED:
            together.setdefault(PHASE_OF.get(stage, stage), []).append(spans.reshape(-1, 2))
    own = [phase for phase in together if phase not in _INNER_FIRST]
    claimed = np.zeros((0, 2), np.int64)
    by_phase = {}
    for phase in [*own, *(phase for phase in _INNER_FIRST if phase in together)]:
        spans = np.concatenate(together[phase])
        by_phase[phase] = without_holes(spans, claimed)
        claimed = np.concatenate([claimed, spans])
    return by_phase


def _ongoing(first: Collectives, matched: CollectiveTable) -> IntArray:
    """Return the step whose bucket each row is; -1: not a bucket.

    No rank waits for it before that step's backward ends.
    """
    reduced = np.array([operation(name) == "all_reduce" for name in matched.names] or [False])[
        matched.name
    ]
    steps = np.full(len(matched.group), -1, np.int64)
    row = matched.rows[0]
    mine = (row >= 0) & (first.table["phase"] == BACKWARD)
    steps[row[mine]] = first.step_at(first.table["start"][mine])
    return np.where(reduced, steps, -1)


def _together(matched: CollectiveTable, ongoing: IntArray, row: int) -> IntArray:
    """Own times at which the ranks last left a collective together, before they began this one.

    MISSING: not that long ago.
    """
    nothing = np.full(len(matched.ranks), MISSING, np.int64)
    if row < 0:
        return nothing
    start, group = matched.start[row], matched.group[row]
    near = np.arange(max(0, row - _BEHIND), row)
    near = near[
        (matched.group[near] == group)
        & matched.together[near]
        & ((ongoing[near] < 0) | (ongoing[near] != ongoing[row]))
    ]
    there = start != MISSING
    done = (matched.end[near] != MISSING) & (matched.end[near] <= start)
    all_done = near[done[:, there].all(1)]
    return np.where(there, matched.end[all_done[-1]], MISSING) if len(all_done) else nothing


def _step_start(collectives: Collectives, until: IntArray) -> IntArray:
    step = collectives.step_at(until)
    return np.where(step >= 0, np.append(collectives.steps[:, 0], MISSING)[step], MISSING)


def list_late_ranks(
    blamed: StepBlame, ranks: Sequence[Collectives], first: int = 0
) -> list[LateRank]:
    """List the ranks that were late.

    The persistent ones come first, and of them the one that cost the others most.

    Args:
        blamed: the late rank of each step.
        ranks: collectives of all ranks.
        first: steps before it do not count.
    """
    column = blamed.column[first:]
    total = int((column >= 0).sum())
    late = [number for number in range(len(ranks)) if (column == number).any()]
    persistent = {
        number: _persistent(int((column == number).sum()), total, len(ranks)) for number in late
    }
    hosts = {
        host: {number for number, rank in enumerate(ranks) if rank.host == host}
        for host in {rank.host for rank in ranks}
    }
    apart = len(hosts) > 1 and UNKNOWN_HOST not in hosts
    often = {
        number
        for number in late
        if persistent[number] or (column == number).sum() > total / (2 * len(ranks))
    }
    lates = []
    for number in late:
        chosen = column == number
        phase, excess_s = max(
            ((phase, _mean_s(values[first:], chosen)) for phase, values in blamed.excess.items()),
            key=lambda pair: pair[1],
        )
        lates.append(LateRank(
            rank=blamed.ranks[number], steps=int(chosen.sum()), late_steps=total, all_steps=len(column),
            late_s=_mean_s(blamed.late[first:], chosen), waited_s=_mean_s(blamed.waited[first:], chosen),
            phase=phase if excess_s > 0 else _OTHER, excess_s=max(excess_s, 0.0), part=None, cost_s=None,
            persistent=persistent[number], whole_host=apart and hosts[ranks[number].host] == often,
        ))  # fmt: skip
    return sorted(lates, key=lambda item: (not item.persistent, -item.waited_s * item.steps))


def _mean_s(ns: IntArray, chosen: BoolArray) -> float:
    """Return seconds."""
    return float(ns[chosen].mean()) / 1e9


def _persistent(times: int, of: int, ranks: int) -> bool:
    chance = 1 / ranks
    sigma = float(np.sqrt(chance * (1 - chance) / max(of, 1)))
    return of >= FEWEST_STEPS and times / of >= max(
        PERSISTENT_SHARE, min(chance + _CHANCE_SIGMAS * sigma, 1.0)
    )
