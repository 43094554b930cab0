"""Orders loaders by speed; loaders whose order is due to chance share a place.

One loader is called faster than another only where their intervals, which are shown beside them, lie apart, and where it was more than
ALIKE faster in enough rounds for a sign test.
"""

import math
import statistics
from collections.abc import Sequence

from feedline.pipelines.compare.result import Row

_ALIKE = 0.10  # a loader that is faster by less is not called faster: two had ratios of 0.92 to 1.09 in four comparisons
_LUCK = 0.05  # one order of two equally fast loaders that comes this seldom is not taken for luck
FEWEST = 5  # rounds below which no order is that seldom (2 ** -FEWEST <= LUCK)


def places(rows: Sequence[Row]) -> list[tuple[int, Row]]:
    """(place, row), the highest samples/s first.

    A row shares the place of those before it unless one of these was clearly faster (``faster``).

    Args:
        rows: measured ones, with as many rounds each.
    """
    clearly = faster(rows)
    groups: list[list[Row]] = []
    for row in sorted(rows, key=lambda one: -one.samples_per_s):
        if groups and clearly[row.name].isdisjoint(one.name for one in groups[-1]):
            groups[-1].append(row)
        else:
            groups.append([row])
    found, place = [], 1
    for group in groups:
        found += [(place, row) for row in group]
        place += len(group)
    return found


def faster(rows: Sequence[Row]) -> dict[str, set[str]]:
    """Name -> names of the loaders that were faster: their interval lies above its own, and they pass a sign test over the rounds.

    A machine that others use is slow in some rounds, so that a loader's rate in a round is taken relative to all loaders' in that round.
    """
    relative, intervals = _relative(rows), {row.name: median_interval(row.rates) for row in rows}

    def is_faster(one: str, other: str) -> bool:
        return apart(intervals[one], intervals[other]) and _faster(relative[one], relative[other])

    return {row.name: {one.name for one in rows if is_faster(one.name, row.name)} for row in rows}


def median_interval(values: Sequence[float]) -> tuple[float, float]:
    """The 95 % interval of the median, from the ordered values (Conover, Practical Nonparametric Statistics, 3.2): of 9, second to eighth.

    Of fewer than 6, the lowest to the highest, which holds the median less often: of five in 94 %, of two in 50 %.
    """
    ordered, rounds, inner = sorted(values), len(values), 0
    while 2 * sum(math.comb(rounds, count) for count in range(inner + 2)) / 2**rounds <= _LUCK and 2 * (inner + 1) < rounds:
        inner += 1
    return ordered[inner], ordered[rounds - 1 - inner]


def apart(higher: tuple[float, float], lower: tuple[float, float]) -> bool:
    """Whether an interval lies above another."""
    return higher[0] > lower[1]


def _relative(rows: Sequence[Row]) -> dict[str, list[float]]:
    """Rates of each round over their geometric mean."""
    logs = {row.name: [math.log(rate) for rate in row.rates] for row in rows}
    means = [statistics.mean(column) for column in zip(*logs.values(), strict=True)]
    return {name: [one - mean for one, mean in zip(found, means, strict=True)] for name, found in logs.items()}


def _faster(one: Sequence[float], other: Sequence[float]) -> bool:
    """Sign test over the rounds, one-sided (Conover, Practical Nonparametric Statistics, 3.4); of too few, whether they lie apart."""
    rounds, more = len(one), math.log1p(_ALIKE)
    if rounds < FEWEST:
        return min(one) > max(other) + more
    wins = sum(a > b + more for a, b in zip(one, other, strict=True))
    return sum(math.comb(rounds, count) for count in range(wins, rounds + 1)) / 2**rounds <= _LUCK
