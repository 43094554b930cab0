"""Numbers as text, always with their unit: ``12.3 ms``, ``1.24 MB``, ``54.1 %``."""

import math
import re
from dataclasses import dataclass

NOT_MEASURED = "not measured"
BLANK = "–"  # in table cells; every table that can hold one says what it means

_TINY, _HUGE = 1e-6, 1e15
_NEARLY = 0.995  # of a whole: more is printed as 100 %
# a sum of floats that should be 10 ms may be a little less, which must not decide on its digits
_ROUNDED = 1 + 1e-9
_SECONDS = ((1.0, "s"), (1e-3, "ms"), (1e-6, "µs"), (1e-9, "ns"))
_HERTZ = ((1e9, "GHz"), (1e6, "MHz"), (1e3, "kHz"), (1.0, "Hz"))
_BYTES = ((1e12, "TB"), (1e9, "GB"), (1e6, "MB"), (1e3, "kB"), (1.0, "B"))


def number(x: float | None, digits: int = 3) -> str:
    """Return at least ``digits`` significant digits, thousands apart: 0.0123, 12.3, 1,234.

    Below a millionth and from 1e15 on: 1.66e-24.
    """
    if x is None or not math.isfinite(x):
        return NOT_MEASURED
    if x == 0:
        return "0"
    if not _TINY <= abs(x) < _HUGE:
        return f"{x:.{digits - 1}e}"
    decimals = max(0, digits - 1 - math.floor(math.log10(abs(x) * _ROUNDED)))
    return f"{x:,.{decimals}f}"


def rate(x: float | None) -> str:
    """Return a throughput with three significant digits: 81.0, 40,600."""
    if x is None or not math.isfinite(x) or x < 1000:
        return number(x)
    return number(round(x, 2 - math.floor(math.log10(x * _ROUNDED))))


def count(x: float | None) -> str:
    """Return a count: 1,200; a mean of counts keeps three digits: 3.02."""
    if x is None or not math.isfinite(x):
        return NOT_MEASURED
    return f"{x:,.0f}" if float(x).is_integer() else number(x)


def counted(x: float, what: str, several: str = "") -> str:
    """Return how many of what: ``1 step``, ``1,200 steps``, ``2 batches``.

    Args:
        several: the plural, if it is not the word with an s, or es after ch.
    """
    plural = several or f"{what}{'es' if what.endswith('ch') else 's'}"
    return f"{count(x)} {what if x == 1 else plural}"


def called(function: str) -> str:
    """Return a function's name with brackets: ``load()``.

    Anonymous code is left unchanged: ``lambda of line 3``, ``lines 30 to 41``,
    ``<listcomp>``.
    """
    return f"{function}()" if function.replace(".", "_").isidentifier() else function


def seconds(x: float | None) -> str:
    """Return a time of any size with three digits.

    830 ns, 12.3 ms, 1.24 s, then minutes and hours.
    """
    if x is None or not math.isfinite(x):
        return NOT_MEASURED
    if abs(x) >= 100:
        return duration(x)
    return Scale.of_seconds(x, digits=3).full(x) if x else "0 s"


def duration(x: float | None) -> str:
    """Return how long a run took: 4.2 s, 3 min 12 s, 1 h 04 min."""
    if x is None or not math.isfinite(x):
        return NOT_MEASURED
    if abs(x) < 100:
        return seconds(x)
    minutes, rest = divmod(round(x), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours} h {minutes:02d} min" if hours else f"{minutes} min {rest:02d} s"


def size(x: float | None) -> str:
    """Return bytes in powers of 1000: 512 B, 110 kB, 1.24 MB."""
    if x is None or not math.isfinite(x):
        return NOT_MEASURED
    return f"{count(x)} B" if abs(x) < 1000 else _scaled(x, _BYTES)


def _scaled(x: float, units: tuple[tuple[float, str], ...]) -> str:
    factor, unit = next((pair for pair in units if abs(x) >= pair[0]), units[-1])
    return f"{number(x / factor)} {unit}"


def share(x: float | None) -> str:
    """Return a share from 0 to 1 as percent with one decimal: 54.1 %."""
    if x is None or not math.isfinite(x):
        return NOT_MEASURED
    return "<0.1 %" if 0 < x < 0.0005 else f"{100 * x:.1f} %"


def percent(x: float | None) -> str:
    """Return a share from 0 to 1 for the middle of a sentence: 59 %, 7.1 %, <0.1 %."""
    if x is None or not math.isfinite(x):
        return NOT_MEASURED
    if 0 < x < 0.0005:
        return "<0.1 %"
    return f"{100 * x:.0f} %" if x >= 0.0995 or x == 0 else f"{100 * x:.1f} %"


def nearly(x: float) -> str:
    """Return a share from 0 to 1 for the middle of a sentence; from 99.5 % on: nearly all."""
    return "nearly all" if x >= _NEARLY else percent(x)


def share_range(low: float, high: float) -> str:
    """Return two shares from 0 to 1, with a decimal where both are small.

    3.5 to 5.2 %, 28 to 51 %.
    """
    digits = 1 if high < 0.1 else 0
    return f"{100 * low:.{digits}f} to {100 * high:.{digits}f} %"


def value(x: float | None, unit: str) -> str:
    """Return a figure of evidence in its own unit.

    A share from 0 to 1 (unit "share") becomes a percentage.
    """
    if x is None or not math.isfinite(x):
        return NOT_MEASURED
    if unit == "s":
        return seconds(x)
    if unit in ("B", "B/s"):
        return size(x) + unit[1:]
    if unit == "share":
        return share(x)
    if unit in ("samples/s", "steps/s"):
        return f"{rate(x)} {unit}"
    if unit == "1":
        return number(x)
    if unit == "%":
        return f"{x:.1f} %"
    if unit == "Hz":
        return _scaled(x, _HERTZ)
    return counted(x, _one_of(unit), unit) if unit else count(x)


def _one_of(unit: str) -> str:
    """Return the singular of a unit: ``batch`` for ``batches``. Other units are left unchanged."""
    if not unit.isalpha():
        return unit
    if unit.endswith("ies"):
        return f"{unit.removesuffix('ies')}y"
    return unit.removesuffix("es" if unit.endswith(("ches", "shes", "sses")) else "s")


def gauge_value(x: float | None, unit: str) -> str:
    """Return a figure of a gauge in its own unit.

    Of gauges, the unit "1" means a share (profiler/samplers/source.py).
    """
    return value(x, "share" if unit == "1" else unit)


@dataclass(frozen=True)
class Scale:
    """One unit and one number of decimals for a column, so that its figures add up by eye."""

    unit: str
    factor: float
    decimals: int

    @classmethod
    def of_seconds(cls, largest: float, digits: int) -> "Scale":
        """Return the scale that gives the largest figure at least ``digits`` digits."""
        if not largest or not math.isfinite(largest):
            return cls("s", 1.0, 0)
        largest = abs(largest) * _ROUNDED
        factor, unit = next((pair for pair in _SECONDS if largest >= pair[0]), _SECONDS[-1])
        scaled = largest / factor
        whole = math.floor(math.log10(scaled)) + 1 if scaled >= 1 else 1
        return cls(unit, factor, 0 if unit == "ns" else max(0, digits - whole))

    @classmethod
    def column(cls, largest: float) -> "Scale":
        """Return the scale of tables whose parts may be a thousandth of their sum.

        It has four digits, and up to 10 s milliseconds (1,464.2 ms, not 1.464 s).
        """
        return cls("ms", 1e-3, 1) if 1 <= largest < 10 else cls.of_seconds(largest, digits=4)

    def __call__(self, x: float | None) -> str:
        """Return the figure without its unit.

        It is ``<0.1`` for one that would read as zero, and is not.
        """
        if x is None or not math.isfinite(x):
            return BLANK
        if 0 < x / self.factor < 0.5 * 10**-self.decimals:
            return f"<{10**-self.decimals:.{self.decimals}f}"
        return f"{x / self.factor:,.{self.decimals}f}"

    def full(self, x: float | None) -> str:
        """Return the figure with its unit."""
        text = self(x)
        return text if text == BLANK else f"{text} {self.unit}"


def sentence(text: str) -> str:
    """Return a text with a capital at its beginning.

    It stays as it is if it begins with a name such as ``num_workers=4`` or ``get_batch
    (train.py:116)``.
    """
    return text[:1].upper() + text[1:] if re.match(r"[a-z]+[ ,](?!\()", text) else text
