"""Memory that grows in jumps: after each epoch, in each evaluation, or every few steps."""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from feedline.analysis.intervals import FloatArray

_LARGE = 8.0  # times the usual change from one reading to the next
_OF_LARGEST = 0.25  # of the largest change: smaller ones are noise beside it
_FEWEST = 3
_FEWEST_STEPS = 1.5  # from one to the next: with less, each step is one of them
_LEAST, _MOST = 0.8, 1.3  # of the growth, that jumps make: with more, some of it is given back
#: The largest over the smallest, and the longest over the shortest distance: others are an
#: allocator's.
_ALIKE = 2.5
_GOES_ON = 1.6  # distances, from the last one to the end: with more, it has come to an end
_DRAWS = 400


@dataclass(frozen=True)
class Jumps:
    """Jumps of about the same size, at about the same distance.

    Attributes:
        per_step: bytes, over all steps between the first and the last.
        interval: the 95 % interval of that (bootstrap over the sizes).
        every_steps: mean distance.
        at: what each of them comes with: epoch or evaluation; empty: unknown.
    """

    per_step: float
    interval: tuple[float, float]
    every_steps: float
    at: str

    @classmethod
    def of(
        cls, made: FloatArray, values: FloatArray, events: Mapping[str, FloatArray]
    ) -> "Jumps | None":
        """Return those of a series; None: it has none, or grows in another way.

        Args:
            made: float64 [n], steps made by each reading.
            values: float64 [n], bytes.
            events: epoch or evaluation -> float64 [m], steps made by each.
        """
        grew = np.diff(values)
        usual, largest = float(np.median(np.abs(grew))), float(grew.max(initial=0.0))
        large = grew > max(_LARGE * usual, _OF_LARGEST * largest, 1.0)
        first = np.flatnonzero(large & ~np.append(False, large[:-1]))
        last = np.flatnonzero(large & ~np.append(large[1:], False)) + 1
        sizes = values[last] - values[first]
        grown = float(values[-1] - values[0])
        if len(sizes) < _FEWEST or not _LEAST * grown <= sizes.sum() <= _MOST * grown:
            return None
        at, where = _at(made[first], made[last], events)
        apart = np.diff(where)
        if apart.min() <= 0 or apart.mean() < _FEWEST_STEPS:
            return None
        alike = sizes.max() <= _ALIKE * sizes.min() and apart.max() <= _ALIKE * apart.min()
        if not alike or made[-1] - where[-1] > _GOES_ON * apart.mean():
            return None
        per_step = float((values[last[-1]] - values[last[0]]) / (where[-1] - where[0]))
        low, high = _spread(sizes)
        return cls(per_step, (per_step * low, per_step * high), float(apart.mean()), at)


def _at(
    before: FloatArray, after: FloatArray, events: Mapping[str, FloatArray]
) -> tuple[str, FloatArray]:
    """Return what the jumps come with, and the steps made by then: [n].

    Args:
        before, after: [n], steps made by the readings around each of them.
    """
    for name, moments in events.items():
        inside = moments[(moments >= before[0] - 1) & (moments <= after[-1] + 1)]
        if len(inside) == len(before) and np.all((inside >= before - 1) & (inside <= after + 1)):
            return name, inside
    return "", (before + after) / 2


def _spread(sizes: FloatArray) -> tuple[float, float]:
    """Return the 95 % interval of the mean size, as a part of it."""
    drawn = np.random.default_rng(0).choice(sizes, (_DRAWS, len(sizes))).mean(axis=1)
    low, high = np.quantile(drawn / sizes.mean(), (0.025, 0.975))
    return float(low), float(high)
