"""An axis upwards whose values are not known beforehand: between round numbers, or logarithmic where they span more than a decade."""

import math
from collections.abc import Sequence
from typing import NamedTuple

from markupsafe import Markup

from feedline.analysis.formatting import number
from feedline.analysis.report.figures.axis import level_line, log_rows, log_share, nice_step

DECADE = 10.0
_ROOM = 1.15  # of a logarithmic axis beyond the outermost values, as a factor
_PX_A_ROW = 40


class YAxis(NamedTuple):
    """From ``low`` at the bottom, ``height`` px, to ``high`` at 0."""

    low: float
    high: float
    log: bool
    height: float

    @classmethod
    def over(cls, values: Sequence[float], height: float, log: bool | None = None) -> "YAxis":
        """Around all of the values.

        Args:
            log: None: where all are above 0 and span more than a decade.
        """
        low, high = min(values), max(values)
        if log is None:
            log = low > 0 and high > DECADE * low
        if log:
            return cls(low / _ROOM, high * _ROOM, True, height)
        if low == high:
            low, high = (low - abs(low) / 2, high + abs(high) / 2) if low else (0.0, 1.0)
        step = nice_step(high - low, max(2, round(height / _PX_A_ROW)))
        return cls(step * math.floor(low / step + 1e-9), step * math.ceil(high / step - 1e-9), False, height)

    def y(self, value: float) -> float:
        """px; a value beyond the axis is at its end."""
        if self.log:
            share = log_share(max(value, self.low), self.low, self.high)
        else:
            share = (value - self.low) / (self.high - self.low)
        return self.height * (1 - min(max(share, 0.0), 1.0))

    def rows(self) -> list[Markup]:
        """Level lines with their numbers on the left."""
        if self.log:
            return log_rows(self.low, self.high, self.height, _plain_number)
        step = nice_step(self.high - self.low, max(2, round(self.height / _PX_A_ROW)))
        decimals = max(0, -math.floor(math.log10(step) + 1e-9))
        marks: list[Markup] = []
        for index in range(round((self.high - self.low) / step) + 1):
            tick, y = self.low + index * step, self.height * (1 - index * step / (self.high - self.low))
            words = f"{tick:,.{decimals}f}" if decimals < 6 else f"{tick:.1e}"
            marks += level_line(y, words)
        return marks


def _plain_number(tick: float) -> str:
    """A tick of a logarithmic axis: 0.05, 20, 5,000, 2e+06."""
    return number(tick, 1) if 1e-4 <= tick < 1e6 else f"{tick:.0e}"


def thousands(tick: float) -> str:
    """A count in few characters: 500, 20 k, 1.5 M."""
    power = min(max(int(math.floor(math.log10(tick) / 3 + 1e-9)), 0), 5) if tick > 0 else 0
    return f"{tick / 1000**power:.4g}{('', ' k', ' M', ' G', ' T', ' P')[power]}"
