"""Orders loaders by speed; loaders whose order is due to chance share a place."""

import math
import statistics
from collections.abc import Sequence

from feedline.pipelines.compare.result import Row

ALIKE = 0.10  # a loader that is faster by less is not called faster: two had ratios of 0.92 to 1.09 in four comparisons
LUCK = 0.05  # one order of two equally fast loaders that comes this seldom is not taken for luck
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
    """Name -> names of the loaders that were faster, by more than ALIKE and in enough rounds for a sign test.

    A machine that others use is slow in some rounds, so that a loader's rate in a round is taken relative to all loaders' in that round.
    """
    relative = _relative(rows)
    return {row.name: {one.name for one in rows if _faster(relative[one.name], relative[row.name])} for row in rows}


def _relative(rows: Sequence[Row]) -> dict[str, list[float]]:
    """Rates of each round over their geometric mean."""
    logs = {row.name: [math.log(rate) for rate in row.rates] for row in rows}
    means = [statistics.mean(column) for column in zip(*logs.values(), strict=True)]
    return {name: [one - mean for one, mean in zip(found, means, strict=True)] for name, found in logs.items()}


def _faster(one: Sequence[float], other: Sequence[float]) -> bool:
    """Sign test over the rounds, one-sided (Conover, Practical Nonparametric Statistics, 3.4); of too few, whether they lie apart."""
    rounds, more = len(one), math.log1p(ALIKE)
    if rounds < FEWEST:
        return min(one) > max(other) + more
    wins = sum(a > b + more for a, b in zip(one, other, strict=True))
    return sum(math.comb(rounds, count) for count in range(wins, rounds + 1)) / 2**rounds <= LUCK
