"""Loaders in order of their speed; where the order is luck, they share a place."""

import math
import statistics
from collections.abc import Sequence

from feedline.pipelines.compare.result import Row

LUCK = 0.05  # one order of two equally fast loaders that comes this seldom is not taken for luck
FEWEST = 5  # rounds below which no order is that seldom (2 ** -FEWEST <= LUCK)


def places(rows: Sequence[Row]) -> list[tuple[int, Row]]:
    """(place, row), the fastest first.

    A machine that others use is slow in some rounds, so that a loader's rate in a round is taken relative to all loaders' in that round.
    A row shares the place of the one that leads it unless the leader was faster in so many rounds that a sign test calls it no luck.
    Those that share a place stand as they are given, so that the next comparison shows them in the same order.

    Args:
        rows: measured ones, with as many rounds each.
    """
    relative = _relative(rows)
    ordered = sorted(rows, key=lambda row: -statistics.median(relative[row.name]))
    groups: list[list[Row]] = []
    for row in ordered:
        if groups and not _faster(relative[groups[-1][0].name], relative[row.name]):
            groups[-1].append(row)
        else:
            groups.append([row])
    found, place = [], 1
    for group in groups:
        found += [(place, row) for row in sorted(group, key=rows.index)]
        place += len(group)
    return found


def _relative(rows: Sequence[Row]) -> dict[str, list[float]]:
    """Rates of each round over their geometric mean."""
    logs = {row.name: [math.log(rate) for rate in row.rates] for row in rows}
    means = [statistics.mean(column) for column in zip(*logs.values(), strict=True)]
    return {name: [one - mean for one, mean in zip(found, means, strict=True)] for name, found in logs.items()}


def _faster(one: Sequence[float], other: Sequence[float]) -> bool:
    """Sign test over the rounds, one-sided (Conover, Practical Nonparametric Statistics, 3.4); of too few, whether they lie apart."""
    rounds = len(one)
    if rounds < FEWEST:
        return min(one) > max(other)
    wins = sum(a > b for a, b in zip(one, other, strict=True))
    return sum(math.comb(rounds, count) for count in range(wins, rounds + 1)) / 2**rounds <= LUCK
