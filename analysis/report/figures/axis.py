"""Parts of figures: SVG as escaped text, and axes with ticks and labels, linear or logarithmic."""

import math
from collections.abc import Callable, Sequence
from typing import NamedTuple

from markupsafe import Markup, escape

from feedline.analysis.text.formatting import count, number
from feedline.profiler.printable import printable

#: Widths of a figure, in px, from which on report.css shows elements of class ``from-N``.
WIDTHS = (240, 360, 480, 600, 720, 840, 960)
FIGURE_UNITS = 1000  # units across the whole of a figure, for ``stretched`` and ``line_path``
# at 12 px, in DejaVu Sans, the widest of the system fonts; others take about 6.3
_CHARACTER_PX = 7.4
_WIDEST_PX = 1080  # px, a figure on the widest page (report.css)
DECADE = 10.0
_ROOM = 1.15  # of a logarithmic axis beyond the outermost values, as a factor
_PX_A_ROW = 40
_ALIKE = 1e-9  # of the values: what they differ by is rounding
_FARTHEST = 1e300  # drawn for what is beyond: there would be no room for a tick above float64's end
_NEAREST = 1e-290  # values that are all nearer to 0 have too few digits for ticks between them
_LONGEST_TICK = 1e15  # written without an exponent


def tag(name: str, *children: object, **attributes: object) -> Markup:
    """Make one element.

    ``class_`` and ``stroke_width`` become ``class`` and ``stroke-width``; None leaves an attribute
    out.
    """
    inside = Markup("").join(_text(child) for child in children if child is not None)
    given = {
        key.rstrip("_").replace("_", "-"): value
        for key, value in attributes.items()
        if value is not None
    }
    written = "".join(f' {key}="{_text(_plain(value))}"' for key, value in given.items())
    return (
        Markup(f"<{name}{written}>{inside}</{name}>") if children else Markup(f"<{name}{written}/>")
    )


def _text(value: object) -> Markup:
    return value if isinstance(value, Markup) else escape(printable(value))


def _plain(value: object) -> object:
    if isinstance(value, float):
        return f"{value:.2f}".rstrip("0").rstrip(".") if math.isfinite(value) else "0"
    return value


def percent(x: float) -> str:
    """Write a position or width along x: 0.25 -> ``25%``."""
    return f"{100 * x:.3f}".rstrip("0").rstrip(".") + "%"


def room_class(text_px: float, share: float) -> str | None:
    """Return the class that shows a label of this width once there is room for it; None: never.

    Room is ``share`` of the figure.
    """
    return next((f"from-{width}" for width in WIDTHS if width * share >= text_px), None)


def text_px(text: str) -> float:
    """Estimate how wide a text is at 12 px."""
    return len(text) * _CHARACTER_PX


def shorten(text: str, most: int) -> str:
    """Shorten a long name to ``most`` characters."""
    return text if len(text) <= most else text[: most - 1] + "…"


def stretched(width: float, height: int, *paths: Markup, y: float = 0) -> Markup:
    """Make an inner svg, ``width`` units wide over the whole figure and 10 units per px high."""
    box = f"0 0 {_plain(float(width))} {height * 10}"
    return tag(
        "svg",
        *paths,
        viewBox=box,
        preserveAspectRatio="none",
        width="100%",
        height=height,
        y=float(y),
        aria_hidden="true",
    )


def staircase(widths: Sequence[float], levels: Sequence[float], close_at: int | None = None) -> str:
    """Return a path that runs level over each column.

    Args:
        widths: of each column, in units.
        levels: y of each column; rounded to whole units, so that errors do not add up.
        close_at: y along which it is closed; None: it is open.
    """
    at = [round(level) for level in levels]
    steps = [f"h{_plain(float(widths[0]))}"]
    steps += [
        f"{f'v{b - a}' if b != a else ''}h{_plain(float(width))}"
        for a, b, width in zip(at, at[1:], widths[1:], strict=False)
    ]
    return (
        f"M0 {at[0]}{''.join(steps)}"
        if close_at is None
        else f"M0 {close_at}V{at[0]}{''.join(steps)}V{close_at}z"
    )


def figure(parts: Sequence[Markup], height: float, label: str, kind: str = "marks") -> Markup:
    """Make the whole of a figure, as wide as its place.

    ``label``: for those who hear it.
    """
    return tag(
        "svg",
        *parts,
        width="100%",
        height=height,
        role="img",
        tabindex=0,
        class_=kind,
        aria_label=label,
    )


def line_path(points: Sequence[tuple[float, float]]) -> str:
    """Return straight lines through points (x from 0 to 1, y in px), for a path in ``stretched``."""
    return "M" + "L".join(f"{FIGURE_UNITS * x:.0f} {10 * y:.0f}" for x, y in points)


def _nice_step(span: float, most: int) -> float:
    """Return the smallest of 1, 2, 5 x 10^k that divides ``span`` into at most ``most`` parts."""
    if not span > 0:
        return 1.0
    power = 10.0 ** math.floor(math.log10(span / most))
    return next(
        step
        for step in (power, 2 * power, 5 * power, 10 * power, 20 * power)
        if span / step <= most * (1 + 1e-9)
    )


def ticks(high: float, most: int = 4) -> list[float]:
    """Round numbers from 0 up to ``high``, at most ``most`` + 1 of them.

    From ``most`` = 3 on, at least two.
    """
    step = _nice_step(high, most)
    return [step * index for index in range(math.floor(high / step * (1 + 1e-9)) + 1)]


def round_up(high: float, most: int = 4) -> float:
    """Return the smallest multiple of the tick step that is not below ``high``."""
    step = _nice_step(high, most)
    return step * max(1, math.ceil(high / step * (1 - 1e-9)))


def spread_labels(wanted: Sequence[float], gap: float, low: float, high: float) -> list[float]:
    """Move labels apart: each at least ``gap`` from the next.

    They stay within [low, high] if they fit at all.

    Args:
        wanted: positions in ascending order.
        gap: least distance.
        low: lowest position.
        high: highest position.
    """
    placed: list[float] = []
    for position in wanted:
        placed.append(max(position, low if not placed else placed[-1] + gap))
    limit = max(high, low + gap * (len(placed) - 1))
    for index in range(len(placed) - 1, -1, -1):
        placed[index] = min(placed[index], limit)
        limit = placed[index] - gap
    return placed


class Box(NamedTuple):
    """What a mark or its label takes.

    x is a share of the figure's width, the others are px; left and right count from x.
    """

    x: float
    left: float
    right: float
    top: float
    bottom: float

    def apart(self, other: "Box", width: float) -> bool:
        """Tell whether they do not touch in a figure of this width."""
        beside = self._right(width) <= other._left(width) or other._right(width) <= self._left(
            width
        )
        return beside or self.bottom <= other.top or other.bottom <= self.top

    def inside(self, width: float, height: float) -> bool:
        """Tell whether none of it leaves the figure."""
        return (
            self._left(width) >= 0
            and self._right(width) <= width
            and self.top >= 0
            and self.bottom <= height
        )

    def _left(self, width: float) -> float:
        return self.x * width + self.left

    def _right(self, width: float) -> float:
        return self.x * width + self.right


def clear_from(label: Box, taken: Sequence[tuple[int, Box]], height: float) -> int | None:
    """Return from which of WIDTHS on a label is inside the figure and clear of all others.

    None: at none.

    Args:
        label: where it would be.
        taken: others, and the width from which on each is shown.
        height: px, of the figure.
    """
    free = None
    # between two widths all boxes move evenly
    for since, width in reversed(list(zip(WIDTHS, (*WIDTHS[1:], _WIDEST_PX), strict=True))):
        apart = all(
            label.apart(other, step)
            for step in (since, width)
            for shown, other in taken
            if shown <= since
        )
        if not (apart and label.inside(since, height) and label.inside(width, height)):
            break
        free = since
    return free


def log_share(value: float, low: float, high: float) -> float:
    """Return where a value is on a logarithmic axis, 0 to 1."""
    return (math.log(value) - math.log(low)) / (math.log(high) - math.log(low))


def _log_ticks(low: float, high: float, most: int) -> list[float]:
    """Return 1, 2, 5 times powers of ten between both.

    Where that would be too many, it is only the powers, or every second, third, 10th ... of them.
    """
    first, last = math.floor(math.log10(low)), math.ceil(math.log10(high))
    of_powers = tuple(((1,), stride) for stride in (1, 2, 3, 10, 30, 100, 300))
    for factors, stride in (((1, 2, 5), 1), *of_powers):
        values = [
            factor * 10.0**power
            for power in range(first, last + 1)
            if power % stride == 0
            for factor in factors
        ]
        values = [tick for tick in values if low <= tick <= high]
        if len(values) <= most:
            break
    return values


def log_rows(low: float, high: float, height: float, words: Callable[[float], str]) -> list[Markup]:
    """Draw level lines with their numbers on the left, from ``height`` px upwards to 0."""
    values = _log_ticks(low, high, round(height / 40))
    return [
        mark
        for tick in values
        for mark in level_line(height * (1 - log_share(tick, low, high)), words(tick))
    ]


def log_columns(
    low: float, high: float, y: float, words: Callable[[float], str], name: str, most: int
) -> list[Markup]:
    """Draw an axis over the whole width with its name below, at ``y`` px.

    Numbers that would stick out at its ends are left out.
    """
    marks = [base_line(y), tag("text", name, class_="tick x", x="50%", y=y + 32)]
    for tick in _log_ticks(low, high, most):
        x = log_share(tick, low, high)
        marks.append(tag("line", class_="axis", x1=percent(x), x2=percent(x), y1=y, y2=y + 4))
        if 0.08 <= x <= 0.9:
            marks.append(tag("text", words(tick), class_="tick x", x=percent(x), y=y + 17))
    return marks


def base_line(y: float) -> Markup:
    """Draw the line of an axis across, without ticks."""
    return tag("line", class_="axis", x1=0, x2="100%", y1=y, y2=y)


def level_line(y: float, words: str) -> list[Markup]:
    """Draw a level line at ``y`` px, with its number on the left."""
    return [
        tag("line", class_="grid", x1=0, x2="100%", y1=y, y2=y),
        tag("text", words, class_="tick y", x=-8, y=y + 4),
    ]


def count_rows(top: float, height: float, most: int = 4) -> list[Markup]:
    """Draw the rows of an axis of counts from 0, at ``height`` px, up to ``top``."""
    return [
        mark
        for tick in ticks(top, most)
        for mark in level_line(height * (1 - tick / top), count(tick))
    ]


def drop_line(x: float, height: float, words: str) -> list[Markup]:
    """Draw an upright line at ``x`` (0 to 1) with words at its foot.

    They are on the side that has more room.
    """
    left = x < 0.5
    label = tag(
        "text",
        words,
        class_=f"tick {'first' if left else 'last'}",
        x=percent(x),
        dx=6 if left else -6,
        y=height - 8,
    )
    return [tag("line", class_="drop", x1=percent(x), x2=percent(x), y1=0, y2=height), label]


def interval_bar(x: float, low: float, high: float) -> Markup:
    """Draw an upright bar at ``x`` (0 to 1) between two heights in px."""
    return tag("line", class_="spread", x1=percent(x), x2=percent(x), y1=low, y2=high)


class YAxis(NamedTuple):
    """From ``low`` at the bottom, ``height`` px, to ``high`` at 0."""

    low: float
    high: float
    log: bool
    height: float

    @classmethod
    def over(cls, values: Sequence[float], height: float, log: bool | None = None) -> "YAxis":
        """Make an axis around all of the values.

        Args:
            values: to be drawn.
            height: px.
            log: None: where all are above 0 and span more than a decade.
        """
        drawn = [min(max(value, -_FARTHEST), _FARTHEST) for value in values]
        low, high = min(drawn), max(drawn)
        if log is None:
            log = low > 0 and high > DECADE * low
        if log and high >= _NEAREST:
            return cls(low / _ROOM, high * _ROOM, True, height)
        size = max(abs(low), abs(high))
        if size < _NEAREST:
            low, high = 0.0, 1.0
        elif high - low <= _ALIKE * size:  # means of the same number differ
            low, high = low - abs(low) / 2, high + abs(high) / 2
        step = _nice_step(high - low, max(2, round(height / _PX_A_ROW)))
        return cls(
            step * math.floor(low / step + 1e-9),
            step * math.ceil(high / step - 1e-9),
            False,
            height,
        )

    def y(self, value: float) -> float:
        """Return the px of a value; beyond the axis, those of its end."""
        if self.log:
            share = log_share(max(value, self.low), self.low, self.high)
        else:
            share = (value - self.low) / (self.high - self.low)
        return self.height * (1 - min(max(share, 0.0), 1.0))

    def rows(self) -> list[Markup]:
        """Draw level lines with their numbers on the left."""
        if self.log:
            return log_rows(self.low, self.high, self.height, _plain_number)
        step = _nice_step(self.high - self.low, max(2, round(self.height / _PX_A_ROW)))
        decimals = max(0, -math.floor(math.log10(step) + 1e-9))
        marks: list[Markup] = []
        for index in range(round((self.high - self.low) / step) + 1):
            tick = self.low + index * step
            y = self.height * (1 - index * step / (self.high - self.low))
            plain = decimals < 6 and abs(tick) < _LONGEST_TICK
            words = f"{tick:,.{decimals}f}" if plain else f"{tick:.1e}"
            marks += level_line(y, words)
        return marks


def _plain_number(tick: float) -> str:
    """Return a tick of a logarithmic axis: 0.05, 20, 5,000, 2e+06."""
    return number(tick, 1) if 1e-4 <= tick < 1e6 else f"{tick:.0e}"


def short_count(tick: float) -> str:
    """Write a count in few characters: 500, 20 k, 1.5 M."""
    power = min(max(int(math.floor(math.log10(tick) / 3 + 1e-9)), 0), 5) if tick > 0 else 0
    return f"{tick / 1000**power:.4g}{('', ' k', ' M', ' G', ' T', ' P')[power]}"
