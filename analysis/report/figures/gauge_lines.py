"""One small figure per sampled quantity."""

import math

from markupsafe import Markup

from feedline.analysis.formatting import gauge_value
from feedline.analysis.measure.model import Gauge
from feedline.analysis.report.figures.axis import round_up
from feedline.analysis.report.figures.svg import cut, stretched, tag

_GAUGE_HEIGHT = 44  # px
_TIME_UNITS = 1000  # units along time
_UNIT_TOPS = {"%": 100.0, "1": 1.0}  # units whose axis ends at all of it


def gauge_figure(gauge: Gauge) -> Markup | None:
    """Draw a gauge as a line; None for fewer than two points.

    The axis goes from 0 (or the minimum, if that is below) to the maximum, rounded up; that of a share to 100 %.
    """
    points = [(at, value) for at, value in zip(gauge.at_s, gauge.values, strict=True) if math.isfinite(at)]
    known = [value for _, value in points if value is not None and math.isfinite(value)]
    if len(known) < 2 or points[-1][0] <= points[0][0]:
        return None
    low = min(0.0, *known)
    high = max(_UNIT_TOPS[gauge.unit], *known) if gauge.unit in _UNIT_TOPS else low + round_up(max(known) - low)
    line = tag("path", class_="line", d=_line(points, low, high))
    label = f"{gauge.name} over the run"
    base = tag("line", class_="axis", x1=0, x2="100%", y1=_GAUGE_HEIGHT, y2=_GAUGE_HEIGHT)
    top = tag("line", class_="grid", x1=0, x2="100%", y1=0, y2=0)
    ends = [_end(high, gauge.unit, 4), _end(low, gauge.unit, _GAUGE_HEIGHT + 3)]
    return tag(
        "svg",
        top,
        stretched(_TIME_UNITS, _GAUGE_HEIGHT, line),
        base,
        *ends,
        width="100%",
        height=_GAUGE_HEIGHT + 1,
        role="img",
        aria_label=label,
    )


def _end(edge: float, unit: str, y: int) -> Markup:
    words = gauge_value(edge, unit).replace(".0 %", " %")
    return tag("text", cut(words, 10), class_="tick", x="100%", dx=6, y=y)


def _line(points: list[tuple[float, float]], low: float, high: float) -> str:
    """Draw relative moves between whole units.

    A value that is missing lifts the pen.
    """
    start, end = points[0][0], points[-1][0]
    path: list[str] = []
    pen: tuple[int, int] | None = None
    for at, value in points:
        if value is None or not math.isfinite(value):
            pen = None
            continue
        x = round(_TIME_UNITS * (at - start) / (end - start))
        y = round(10 * _GAUGE_HEIGHT * (1 - (value - low) / (high - low)))
        path.append(f"M{x} {y}" if pen is None else f"l{x - pen[0]} {y - pen[1]}")
        pen = (x, y)
    return "".join(path).replace(" -", "-")
