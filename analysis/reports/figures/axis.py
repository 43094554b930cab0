"""Where ticks and labels go."""

import math
from collections.abc import Sequence


def nice_step(span: float, most: int) -> float:
    """The smallest of 1, 2, 5 x 10^k that divides ``span`` into at most ``most`` parts."""
    if not span > 0:
        return 1.0
    power = 10.0 ** math.floor(math.log10(span / most))
    return next(step for step in (power, 2 * power, 5 * power, 10 * power, 20 * power) if span / step <= most * (1 + 1e-9))


def ticks(high: float, most: int = 4) -> list[float]:
    """Round numbers from 0 up to ``high``, at most ``most`` + 1 of them; from ``most`` = 3 on, at least two."""
    step = nice_step(high, most)
    return [step * index for index in range(math.floor(high / step * (1 + 1e-9)) + 1)]


def round_up(high: float, most: int = 4) -> float:
    """The smallest multiple of the tick step that is not below ``high``."""
    step = nice_step(high, most)
    return step * max(1, math.ceil(high / step * (1 - 1e-9)))


def spread(wanted: Sequence[float], gap: float, low: float, high: float) -> list[float]:
    """Move labels apart: positions in ascending order, each at least ``gap`` from the next, within [low, high] if they fit at all.

    Args:
        wanted: positions in ascending order.
    """
    placed: list[float] = []
    for position in wanted:
        placed.append(max(position, low if not placed else placed[-1] + gap))
    limit = max(high, low + gap * (len(placed) - 1))
    for index in range(len(placed) - 1, -1, -1):
        placed[index] = min(placed[index], limit)
        limit = placed[index] - gap
    return placed


def clip_level(peaks: Sequence[float], stack: Sequence[float]) -> float:
    """How high a series' axis should go: over everything, unless a few peaks would flatten the rest.

    Peaks are left out of the axis (and marked) only when the highest is more than twice the 95th percentile of the peaks.
    """
    ordered = sorted(peaks)
    usual = ordered[min(len(ordered) - 1, math.floor(0.95 * len(ordered)))]
    top = ordered[-1] if ordered[-1] <= 2 * usual else 1.25 * usual
    return max(top, *stack) if max(stack) <= 2 * usual else top
