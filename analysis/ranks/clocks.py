"""One clock for all ranks, with the error that cannot be excluded.

Measured clocks (``RankClock``, a ping-pong while the training ran) are used where they agree with what must be so: of a collective in which
everybody takes part, no rank can see the end before every rank has begun. Where they are missing or disagree, the ends of such collectives
stand for one moment: the median of their differences, window by window, follows drift.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from feedline.analysis.intervals import IntArray
from feedline.analysis.ranks.match import MISSING, CollectiveTable
from feedline.analysis.traces.collectives import Collectives, RankClock

WINDOW = 20  # collectives that one offset is the median of
_MOST_WINDOWS = 64
FEWEST = 5  # ends in common below which nothing is aligned
SLACK_NS = 1_000_000  # stamps of start and end come from two threads, of which one may have been held up in between
_DRIFTS = np.linspace(-5e-4, 5e-4, 101)  # how fast two clocks can part: what NTP slews at most (adjtimex(2): 500 ppm)
OUTLIERS = 0.01  # share of collectives that may contradict an alignment


@dataclass(frozen=True)
class Alignment:
    """Clocks of all ranks against the first one's.

    Attributes:
        clocks: one for each column of CollectiveTable.
        bound: ns: smaller differences between ranks are within the error of their clocks; inf: the clocks cannot be compared.
        how: "measured", "collective ends" or "none".
        notes: what does not fit, in words.
    """

    clocks: list[RankClock]
    bound: float
    how: str
    notes: list[str]

    def reference(self, times: IntArray) -> IntArray:
        """Times of CollectiveTable on one clock.

        Args:
            times: int64 [m, ranks], MISSING where there is none.
        """
        found = np.full(times.shape, MISSING)
        for column, clock in enumerate(self.clocks):
            there = times[:, column] != MISSING
            found[there, column] = clock.to_reference(times[there, column])
        return found


def align(ranks: Sequence[Collectives], matched: CollectiveTable) -> Alignment:
    """The best alignment that the runs allow.

    Args:
        ranks: in any order; those that CollectiveTable left out are not looked at.
    """
    by_rank = {one.rank: one for one in ranks}
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
            f"the clock measured on rank {rank} is wrong: {share:.0%} of its collectives ended before another rank had begun them; "
            "clocks are aligned on the ends of collectives instead"
            for rank, share in wrong
        ]
    return _passive(matched, notes)


def _pair_bound(bounds: list[float]) -> float:
    largest = sorted(bounds)[-2:]
    return float(sum(largest))


def _contradicting(made: Alignment, matched: CollectiveTable) -> list[tuple[int, float]]:
    """(rank, share of collectives) whose end lies before another rank's start on these clocks."""
    chosen = matched.together & (matched.start != MISSING).sum(1).astype(bool)
    start = made.reference(matched.start[chosen])
    end = made.reference(matched.end[chosen])
    begun = start.max(1)  # MISSING is the smallest number
    found = []
    for column, rank in enumerate(matched.ranks):
        there = end[:, column] != MISSING
        early = begun[there] - end[there, column] > made.bound + SLACK_NS
        if there.any() and early.mean() > OUTLIERS:
            found.append((rank, float(early.mean())))
    return found


def _passive(matched: CollectiveTable, notes: list[str]) -> Alignment:
    """Offsets from the ends of collectives that all ranks leave together."""
    base = 0
    clocks, bounds = [], []
    for column, rank in enumerate(matched.ranks):
        chosen = matched.together & (matched.end[:, column] != MISSING) & (matched.end[:, base] != MISSING)
        own, reference = matched.end[chosen, column], matched.end[chosen, base]
        if column == base:
            clocks.append(RankClock(own[:0], own[:0], 0.0))
            bounds.append(0.0)
            continue
        if len(own) < FEWEST:
            notes.append(f"ranks {matched.ranks[base]} and {rank} have {len(own)} collectives in common, too few to align their clocks")
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
    windows = np.array_split(np.arange(len(own)), max(1, min(_MOST_WINDOWS, len(own) // WINDOW)))
    at = np.array([own[window[len(window) // 2]] for window in windows], np.int64)
    offset = np.array([middle + int(np.median(difference[window] - middle)) for window in windows], np.int64)
    clock = RankClock(at, offset, 0.0)
    return RankClock(at, offset, _bound(clock.to_reference(own) - reference[order]))


def _bound(residual: IntArray) -> float:
    """ns: how far apart three quarters of the ends are that should be one moment.

    The median of a window is closer than its ends are, unless one rank always hears of the end later than another: that part no passive
    alignment sees, and it is of the order of this spread (benchmarks/straggler_truth.py prints the true error beside the bound).
    """
    return float(np.quantile(np.abs(residual), 0.75))


def _misfit(matched: CollectiveTable, base: int, column: int) -> str:
    """Why no offset and no drift at all could let two ranks have met, or nothing."""
    chosen = matched.together & (matched.start[:, [base, column]] != MISSING).all(1) & (matched.end[:, [base, column]] != MISSING).all(1)
    if not chosen.any():
        return ""
    start, end = matched.start[chosen], matched.end[chosen]
    low = start[:, base] - end[:, column] - SLACK_NS  # own + offset: the other's end is not before my start, and the other way round
    high = end[:, base] - start[:, column] + SLACK_NS
    middle = int(np.median(low))
    time = (start[:, column] - start[0, column]).astype(float)
    slope = _DRIFTS[:, None] * time
    lows, highs = np.sort((low - middle) - slope, 1), np.sort((high - middle) - slope, 1)
    skip = int(OUTLIERS * len(time))
    if (lows[:, -1 - skip] <= highs[:, skip]).any():
        return ""
    ranks = matched.ranks
    return (
        f"the records of ranks {ranks[base]} and {ranks[column]} do not fit together: no clock offset explains their collectives. "
        "They belong to different runs or are incomplete, so the ranks are not compared"
    )
