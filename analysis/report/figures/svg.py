"""Helpers that build SVG as escaped text."""

import math
from collections.abc import Sequence

from markupsafe import Markup, escape

from feedline.profiler.printable import printable

#: Widths of a figure, in px, from which on report.css shows elements of class ``from-N``.
WIDTHS = (240, 360, 480, 600, 720, 840, 960)
FIGURE_UNITS = 1000  # units across the whole of a figure, for ``stretched`` and ``line_path``
# at 12 px, in DejaVu Sans, the widest of the system fonts; others take about 6.3
_CHARACTER_PX = 7.4


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
