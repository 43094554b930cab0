"""Operators on two logarithmic axes: FLOP/byte across, FLOP/s upwards, one circle an operator, its area by its time."""

import math
from collections.abc import Sequence
from typing import NamedTuple

from markupsafe import Markup

from feedline.analysis.explain.model import OperatorTime
from feedline.analysis.formatting import count, number, seconds
from feedline.analysis.report.figures.axis import Box, clear_from, log_columns, log_rows, log_share
from feedline.analysis.report.figures.roofline import flops
from feedline.analysis.report.figures.svg import WIDTHS, cut, figure, percent, tag, text_px

_HEIGHT, _AXIS = 240, 36  # px
_AROUND = 3.0  # how far the axes reach beyond the outermost operators, as a factor
_SMALLEST, _LARGEST = 3.5, 14.0  # px, radius
_LABELS, _NAME = 8, 24  # how many at most, and characters of each
_LINE, _GAP = 16, 4  # px: a label's height, and from a circle to its label


class Point(NamedTuple):
    """One operator: x from 0 to 1, y and radius in px."""

    it: OperatorTime
    x: float
    y: float
    radius: float


class Label(NamedTuple):
    """Where a name is written, and the width of the figure, one of WIDTHS, from which on it is."""

    since: int
    anchor: str
    dx: float
    box: Box


def operator_roofline(operators: Sequence[OperatorTime]) -> Markup | None:
    """The operators whose FLOP/s and FLOP/byte are both known, the longest first. None: there is none."""
    known = [one for one in operators if one.flop_per_s and one.flop_per_byte]
    if not known:
        return None
    across = _range([one.flop_per_byte or 0.0 for one in known])
    upward = _range([one.flop_per_s or 0.0 for one in known])
    points = _points(known, across, upward)
    axes = [*log_rows(*upward, _HEIGHT, lambda tick: flops(tick, "")), *log_columns(*across, _HEIGHT, count, "FLOP/byte", 6)]
    marks = [_mark(point, label) for point, label in zip(points, _place(points), strict=True)]
    label = "Operators by FLOP per byte and FLOP per second. Left and right arrow keys read out the operators, the longest first."
    return figure([*axes, *marks], _HEIGHT + _AXIS, label)


def _place(points: Sequence[Point]) -> list[Label | None]:
    """A label for each of the first LABELS that have room: one that covers no circle and no label before it, however wide the figure is."""
    circles = [_around(point) for point in points]
    placed: list[Label | None] = []
    for point in points:
        if sum(label is not None for label in placed) == _LABELS:
            break
        taken = [(WIDTHS[0], circle) for circle in circles] + [(label.since, label.box) for label in placed if label]
        found = [label._replace(since=since) for label in _beside(point) if (since := clear_from(label.box, taken, _HEIGHT))]
        placed.append(min(found, key=lambda label: label.since, default=None))
    return placed + [None] * (len(points) - len(placed))


def _beside(point: Point) -> list[Label]:
    wide, away = text_px(cut(point.it.name, _NAME)), point.radius + _GAP
    level = (point.y - _LINE / 2, point.y + _LINE / 2)
    right, left = Box(point.x, away, away + wide, *level), Box(point.x, -away - wide, -away, *level)
    above = Box(point.x, -wide / 2, wide / 2, point.y - point.radius - _LINE, point.y - point.radius)
    below = above._replace(top=point.y + point.radius, bottom=point.y + point.radius + _LINE)
    return [Label(0, "start", away, right), Label(0, "end", -away, left), Label(0, "middle", 0, above), Label(0, "middle", 0, below)]


def _around(point: Point) -> Box:
    return Box(point.x, -point.radius, point.radius, point.y - point.radius, point.y + point.radius)


def _range(values: Sequence[float]) -> tuple[float, float]:
    return min(values) / _AROUND, max(values) * _AROUND


def _points(known: Sequence[OperatorTime], across: tuple[float, float], upward: tuple[float, float]) -> list[Point]:
    """The longest first, so that none hides a smaller one."""
    on_device = any(one.device_s for one in known)
    took = sorted(((one.device_s if on_device else one.total_s, index) for index, one in enumerate(known)), reverse=True)
    longest = took[0][0] or 1.0
    made = []
    for time, index in took:
        one = known[index]
        y = _HEIGHT * (1 - log_share(one.flop_per_s or 0.0, *upward))
        made.append(Point(one, log_share(one.flop_per_byte or 0.0, *across), y, max(_SMALLEST, _LARGEST * math.sqrt(time / longest))))
    return made


def _mark(point: Point, label: Label | None) -> Markup:
    it = point.it
    took = f"{seconds(it.device_s)} on the device" if it.device_s else f"{seconds(it.total_s)} on the host"
    tip = f"{it.name}: {flops(it.flop_per_s)}/s at {number(it.flop_per_byte)} FLOP/byte; {count(it.count)} calls, {took}"
    parts = [tag("circle", class_="dot", fill_opacity=0.6, cx=percent(point.x), cy=point.y, r=point.radius)]
    if label:
        where = {"x": percent(point.x), "dx": label.dx, "y": label.box.top + _LINE - _GAP, "text_anchor": label.anchor}
        parts.append(tag("text", cut(it.name, _NAME), class_=f"from-{label.since}", **where))
    return tag("g", *parts, class_="point", data_tip=tip)
