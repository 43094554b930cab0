"""One clock for all ranks, with the error that cannot be excluded.

Measured clocks (``RankClock``, a ping-pong while the training ran) are used where they agree with
what must be so: of a collective in which everybody takes part, no rank can see the end before every
rank has begun. Where they are missing or disagree, the ends of such collectives stand for one
moment: the median of their differences, window by window, follows drift.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from feedline.analysis.intervals import BoolArray, IntArray
from feedline.analysis.ranks.match import MISSING, CollectiveTable
from feedline.analysis.traces.collectives import SLOTS, Collectives, RankClock

_WINDOW = 20  # collectives that one offset is the median of
_MOST_WINDOWS = 64
MIN_COMMON_ENDS = 5  # ends in common below which nothing is aligned
# stamps of start and end come from two threads, of which one may have been held up in between
STAMP_SLACK_NS = 1_000_000
# how fast two clocks can part: what NTP slews at most (adjtimex(2): 500 ppm)
_DRIFTS = np.linspace(-5e-4, 5e-4, 101)
OUTLIERS = 0.01  # share of collectives that may contradict an alignment


@dataclass(frozen=True)
class Alignment:
    """Clocks of all ranks against the first one's.

    Attributes:
        clocks: one for each column of CollectiveTable.
        bound: ns: smaller differences between ranks are within the error of their clocks; inf: the
            clocks cannot be compared.
        how: "measured", "collective ends" or "none".
        notes: what does not fit, in words.
    """

    clocks: list[RankClock]
    bound: float
    how: str
    notes: list[str]

    def reference(self, times: IntArray) -> IntArray:
        """Put times of CollectiveTable on one clock.

        Args:
            times: int64 [m, ranks], MISSING where there is none.
        """
        on_reference = np.full(times.shape, MISSING)
        for column, clock in enumerate(self.clocks):
            there = times[:, column] != MISSING
            on_reference[there, column] = clock.to_reference(times[there, column])
        return on_reference


def align(ranks: Sequence[Collectives], matched: CollectiveTable) -> Alignment:
    """Align clocks as well as the runs allow.

    Args:
        ranks: in any order; those that CollectiveTable left out are not looked at.
        matched: collectives of all ranks.
    """
    by_rank = {rank.rank: rank for rank in ranks}
    own = [by_rank[rank].clock for rank in matched.ranks]
    notes: list[str] = []
    if len(own) < 2:
        return Alignment(own, 0.0, "measured", notes)
    if all(np.isfinite(clock.bound) for clock in own):
        measured = Alignment(own, _pair_bound([clock.bound for clock in own]), "measured", notes)
        wrong = _contradicting(measured, matched)
        if not wrong:
            return measured
        notes = [
            f"the clock measured on rank {rank} is wrong: {share:.0%} of its collectives ended "
            f"before another rank had begun them; "
            "clocks are aligned on the ends of collectives instead"
            for rank, share in wrong
        ]
    return _passive(matched, notes)


def _pair_bound(bounds: list[float]) -> float:
    largest = sorted(bounds)[-2:]
    return float(sum(largest))


def _contradicting(alignment: Alignment, matched: CollectiveTable) -> list[tuple[int, float]]:
    """Return how many collectives of a rank end before another rank's start on these clocks.

    The pair is (rank, share of collectives).
    """
    chosen = matched.together & (matched.start != MISSING).sum(1).astype(bool)
    start = alignment.reference(matched.start[chosen])
    end = alignment.reference(matched.end[chosen])
    begun = start.max(1)  # MISSING is the smallest number
    shares = []
    for column, rank in enumerate(matched.ranks):
        there = end[:, column] != MISSING
        early = begun[there] - end[there, column] > alignment.bound + STAMP_SLACK_NS
        if there.any() and early.mean() > OUTLIERS:
            shares.append((rank, float(early.mean())))
    return shares


def _passive(matched: CollectiveTable, notes: list[str]) -> Alignment:
    """Return offsets from the ends of collectives that all ranks leave together."""
    base = 0
    clocks, bounds = [], []
    for column, rank in enumerate(matched.ranks):
        chosen = (
            matched.together
            & (matched.end[:, column] != MISSING)
            & (matched.end[:, base] != MISSING)
        )
        own, reference = matched.end[chosen, column], matched.end[chosen, base]
        if column == base:
            clocks.append(RankClock(own[:0], own[:0], 0.0))
            bounds.append(0.0)
            continue
        if len(own) < MIN_COMMON_ENDS:
            notes.append(
                f"ranks {matched.ranks[base]} and {rank} have {len(own)} collectives in common, "
                f"too few to align their clocks"
            )
            clocks.append(RankClock(own[:0], own[:0], np.inf))
            bounds.append(np.inf)
            continue
        clock = _on_ends(own, reference)
        clocks.append(clock)
        bounds.append(clock.bound)
        if misfit := _misfit(matched, base, column):
            notes.append(misfit)
            bounds[-1] = np.inf
    bound = _pair_bound(bounds)
    return Alignment(clocks, bound, "collective ends" if np.isfinite(bound) else "none", notes)


def _on_ends(own: IntArray, reference: IntArray) -> RankClock:
    order = np.argsort(own, kind="stable")
    own, difference = own[order], (reference - own)[order]
    middle = int(np.median(difference))  # float64 holds what is left exactly
    windows = np.array_split(np.arange(len(own)), max(1, min(_MOST_WINDOWS, len(own) // _WINDOW)))
    at = np.array([own[window[len(window) // 2]] for window in windows], np.int64)
    offset = np.array(
        [middle + int(np.median(difference[window] - middle)) for window in windows], np.int64
    )
    clock = RankClock(at, offset, 0.0)
    return RankClock(at, offset, _bound(clock.to_reference(own) - reference[order]))


def _bound(residual: IntArray) -> float:
    """Return how far apart three quarters of the ends are that should be one moment, ns.

    The median of a window is closer than its ends are, unless one rank always hears of the end
    later than another: that part no passive alignment sees, and it is of the order of this spread
    (benchmarks/straggler_truth.py prints the true error beside the bound).
    """
    return float(np.quantile(np.abs(residual), 0.75))


def _misfit(matched: CollectiveTable, base: int, column: int) -> str:
    """Say why no offset and no drift at all could let two ranks have met, or nothing."""
    chosen = (
        matched.together
        & (matched.start[:, [base, column]] != MISSING).all(1)
        & (matched.end[:, [base, column]] != MISSING).all(1)
    )
    if not chosen.any():
        return ""
    start, end = matched.start[chosen], matched.end[chosen]
    # own + offset: the other's end is not before my start, and the other way round
    low = start[:, base] - end[:, column] - STAMP_SLACK_NS
    high = end[:, base] - start[:, column] + STAMP_SLACK_NS
    middle = int(np.median(low))
    time = (start[:, column] - start[0, column]).astype(float)
    slope = _DRIFTS[:, None] * time
    lows, highs = np.sort((low - middle) - slope, 1), np.sort((high - middle) - slope, 1)
    skip = int(OUTLIERS * len(time))
    if (lows[:, -1 - skip] <= highs[:, skip]).any():
        return ""
    ranks = matched.ranks
    return (
        f"the records of ranks {ranks[base]} and {ranks[column]} do not fit together: no clock "
        f"offset explains their collectives. "
        "They belong to different runs or are incomplete, so the ranks are not compared"
    )


@dataclass(frozen=True)
class Meetings:
    """When the ranks of each collective came together, on the reference clock.

    Attributes:
        start, end: int64 [m, ranks], ns; MISSING where there is none.
        last: int64 [m]: the last known rank began.
        last_column: int64 [m]: which one that was.
        free: int64 [m]: all ranks had begun and had a slot free: bytes could move.
    """

    start: IntArray
    end: IntArray
    last: IntArray
    last_column: IntArray
    free: IntArray


@dataclass(frozen=True)
class RankArrivals:
    """When the others came to the collectives of one rank.

    int64 [n] each, one entry for each of its table's, in its own time.

    Attributes:
        last: ns: the last rank that it had to wait for began; its own start where it waited for
            none. Never after its end.
        free: ns: bytes could move.
        late: which rank that was: index into ``ranks``.
        ranks: numbers of ranks.
        met: whether any of its collectives can be compared with another rank's. Else nothing
            separates waiting from transfer.
    """

    last: IntArray
    free: IntArray
    late: IntArray
    ranks: Sequence[int]
    met: bool


def slot_free_since(end: IntArray, backend: str) -> IntArray:
    """Find since when one of the backend's slots was free for each collective of a group.

    The collectives are those of one rank, in order.
    """
    before = np.concatenate([[MISSING], np.maximum.accumulate(end)[:-1]]) if len(end) else end
    shifted = np.concatenate([[MISSING], end[:-1]]) if len(end) else end
    # the next largest of all earlier ends: what the largest so far pushes out
    for _ in range(SLOTS.get(backend, 1) - 1):
        pushed = np.minimum(shifted, np.concatenate([[MISSING], before[:-1]]))
        shifted, before = pushed, np.maximum.accumulate(pushed)
    return before


def waited_for(start: IntArray, own: int, end: IntArray) -> tuple[IntArray, IntArray]:
    """Find the last to begin that a rank can have waited for.

    Some ranks can be done there before others have begun.

    Args:
        start: int64 [n, k], ns: begins of ranks, the rank's own in column ``own``; MISSING where
            there is none.
        own: column of the rank.
        end: int64 [n], ns: it was done.

    Returns:
        int64 [n], ns: when it began; int64 [n]: its column.
    """
    known = np.where(start <= np.maximum(end, start[:, own])[:, None], start, MISSING)
    return known.max(1), known.argmax(1)


def arrivals_of_differences(
    collectives: Collectives,
    there: BoolArray,
    behind: IntArray,
    queued: IntArray,
    late: IntArray,
    ranks: Sequence[int],
    bound: float,
    met: bool,
) -> RankArrivals:
    """Make arrivals of differences on the reference clock.

    The rank's own clock shows the same differences.

    Args:
        collectives: the rank's collectives.
        there: bool [n]: the entries of its table that were matched; the others waited for no rank.
            ``behind``, ``queued`` and ``late`` have one entry for each.
        behind: ns from its start until the last rank's.
        queued: ns from then on until a slot was free.
        late: the rank that began last, as a column of ``ranks``.
        ranks: numbers of all ranks.
        bound: ns: waiting and queueing shorter than this are not claimed.
        met: all ranks were seen.
    """
    start = collectives.table["start"].astype(np.int64)
    done = np.maximum(collectives.table["end"].astype(np.int64), start)[there]
    last, free, whom = start.copy(), start.copy(), np.zeros(len(start), np.int64)
    last[there] = np.minimum(start[there] + np.where(behind > bound, behind, 0), done)
    free[there] = np.minimum(last[there] + np.where(queued > bound, queued, 0), done)
    whom[there] = late
    return RankArrivals(last, free, whom, ranks, met)


def incomparable_arrivals(collectives: Collectives, ranks: Sequence[int]) -> RankArrivals:
    """Return arrivals of a rank that cannot be compared: all of its collectives are transfer."""
    nothing = np.zeros(0, np.int64)
    return arrivals_of_differences(
        collectives,
        np.zeros(len(collectives.table), bool),
        nothing,
        nothing,
        nothing,
        ranks,
        0.0,
        False,
    )
