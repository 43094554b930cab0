"""The run among its roofs, and operators by FLOP/byte, on two logarithmic axes.

What a FLOP rate bounds (the device, its work, the step itself) falls along a diagonal; everything
else is level. Every line ends at the right edge, where its label is, moved apart from the others
along a leader.
"""

import math
from collections.abc import Sequence
from typing import NamedTuple

from markupsafe import Markup

from feedline.analysis.explain.model import OperatorTime, Roofline, ThroughputBound
from feedline.analysis.report.figures.axis import (
    WIDTHS,
    Box,
    base_line,
    clear_from,
    figure,
    log_columns,
    log_rows,
    log_share,
    percent,
    shorten,
    spread_labels,
    tag,
    text_px,
)
from feedline.analysis.report.palette import COLORS
from feedline.analysis.text.formatting import count, number, seconds

_LOWEST, _LABEL_PX, _AXIS = 280, 14, 36  # px
_LEADER = 16  # px from the right edge to a label
_LEFT_OF_RUN, _RIGHT_OF_RUN = 30.0, 3.0  # how far the x axis reaches, as factors
_ABOVE, _BELOW = 1.4, 1.3  # the same of the y axis, around what is on it
_DIAGONAL = ("device", "step", "gpu")
_NAME, _AMOUNT = 16, 9  # characters of a label
_OPERATOR_HEIGHT, _OPERATOR_AXIS = 240, 36  # px
_AXES_REACH = 3.0  # how far the axes reach beyond the outermost operators, as a factor
_MIN_RADIUS, _MAX_RADIUS = 3.5, 14.0  # px, radius
_LABELS, _OPERATOR_NAME = 8, 24  # how many at most, and characters of each
_LINE, _GAP = 16, 4  # px: a label's height, and from a circle to its label


class _Frame(NamedTuple):
    """What part of the plane is drawn.

    Without FLOP, the run stands in the middle and there is no x axis.
    """

    flop: float | None
    left: float
    right: float
    bottom: float
    top: float
    height: float

    def x(self, flop: float) -> float:
        """Return the place of an intensity, 0 to 1."""
        return log_share(flop, self.left, self.right)

    def y(self, rate: float) -> float:
        """Return the px of a rate."""
        return self.height * (1 - log_share(rate, self.bottom, self.top))

    def at_edge(self, roof: ThroughputBound) -> float:
        """Return the rate of a roof at the right edge."""
        falls = self.flop is not None and roof.kind in _DIAGONAL
        return roof.samples_per_s * (self.flop or 0.0) / self.right if falls else roof.samples_per_s


def roofline_figure(roofline: Roofline) -> Markup | None:
    """Draw lines with numbers, which are those of the table below the figure.

    None without a roof.
    """
    if not roofline.roofs:
        return None
    frame = _frame_of(roofline)
    if not 0 < frame.bottom < frame.top < float("inf"):  # rates that no machine has
        return None
    run = frame.x(roofline.flop_per_sample) if roofline.flop_per_sample else 0.5
    ends = sorted(
        (frame.y(frame.at_edge(roof)), index) for index, roof in enumerate(roofline.roofs)
    )
    labels = spread_labels([end for end, _ in ends], _LABEL_PX, 4, frame.height)
    place = {index: label for label, (_, index) in zip(labels, ends, strict=True)}
    roofs = [_roof(frame, roofline, index, place[index]) for index in range(len(roofline.roofs))]
    parts = [
        *log_rows(frame.bottom, frame.top, frame.height, count),
        *_flop_axis(frame),
        *roofs,
        _run(frame, roofline, run),
    ]
    label = (
        "Roofline of the run. Left and right arrow keys read out the limits, the lowest "
        "first, then the run."
    )
    height = round(frame.height) + _AXIS
    return figure(parts, height, label)


def _frame_of(roofline: Roofline) -> _Frame:
    """Make a frame around the run and all ends of its roofs."""
    flop = roofline.flop_per_sample
    left, right = (flop / _LEFT_OF_RUN, flop * _RIGHT_OF_RUN) if flop else (1.0, 10.0)
    unscaled = _Frame(flop, left, right, 1.0, 2.0, 1.0)
    rates = [
        roofline.samples_per_s,
        *(roof.samples_per_s for roof in roofline.roofs),
        *(unscaled.at_edge(roof) for roof in roofline.roofs),
    ]
    height = float(max(_LOWEST, _LABEL_PX * (len(roofline.roofs) + 1)))
    return _Frame(flop, left, right, min(rates) / _BELOW, max(rates) * _ABOVE, height)


def role(roofline: Roofline, roof: ThroughputBound) -> str:
    """Tell how its line is drawn.

    ``nearest``, ``next``, ``bound``, or ``part`` (of something, or an alternative).
    """
    if roof.id in (roofline.nearest_id, roofline.next_id):
        return "nearest" if roof.id == roofline.nearest_id else "next"
    return "bound" if roof.binds else "part"


def _roof(frame: _Frame, roofline: Roofline, index: int, label: float) -> Markup:
    roof = roofline.roofs[index]
    end = frame.y(frame.at_edge(roof))
    begin, left = end, 0.0
    if frame.flop is not None and roof.kind in _DIAGONAL:
        rate_flops = roof.samples_per_s * frame.flop
        reaches = max(rate_flops / frame.top, frame.left)
        begin, left = frame.y(rate_flops / reaches), frame.x(reaches)
    ends = {"x1": percent(left), "y1": begin, "x2": "100%", "y2": end}
    mark = {"nearest": "binding limit", "next": "next limit"}.get(role(roofline, roof))
    tip = (
        f"{index + 1} {roof.name}: {number(roof.samples_per_s)} "
        f"samples/s{f', the {mark}' if mark else ''}. {roof.message}; {roof.source}"
    )
    beside = tag(
        "svg",
        tag("path", class_="leader", d=f"M1 {end:.1f}h3L{_LEADER - 5} {label:.1f}h3"),
        tag(
            "text",
            _mark(index + 1),
            f" {shorten(roof.name, _NAME)} ",
            _mark(shorten(number(roof.samples_per_s), _AMOUNT)),
            **_at(label, "aside"),
        ),
        tag("text", index + 1, **_at(label, "within mark")),
        x="100%",
        class_="beside",
    )
    color = f" c-{roof.id}" if roof.id in COLORS else ""
    lines = [tag("line", class_="line", **ends), tag("line", class_="hit", **ends)]
    return tag(
        "g",
        *lines,
        beside,
        class_=f"roof {role(roofline, roof)} of-{roof.kind}{color}",
        data_tip=tip,
    )


def _mark(text: object) -> Markup:
    return tag("tspan", text, class_="mark")


def _at(label: float, kind: str) -> dict[str, object]:
    return {"x": _LEADER, "y": label + 4, "class_": kind}


def _run(frame: _Frame, roofline: Roofline, x: float) -> Markup:
    y = frame.y(roofline.samples_per_s)
    spread_of = (
        ""
        if roofline.low is None or roofline.high is None
        else f" ({number(roofline.low)} to {number(roofline.high)})"
    )
    flop = f" at {flops(roofline.flop_per_sample)} per sample" if roofline.flop_per_sample else ""
    tip = f"this run: {number(roofline.samples_per_s)} samples/s{spread_of}{flop}"
    drop = tag("line", class_="drop", x1=percent(x), x2=percent(x), y1=y, y2=frame.height)
    ring, dot = (
        tag("circle", class_=kind, cx=percent(x), cy=y, r=radius)
        for kind, radius in (("ring", 7), ("dot", 4))
    )
    return tag("g", *([drop] if frame.flop else []), ring, dot, class_="run", data_tip=tip)


def flops(amount: float | None, unit: str = "FLOP") -> str:
    """Write an amount of FLOP: ``1.82 GFLOP``."""
    if not amount:
        return f"0 {unit}"
    power = min(max(int(math.floor(math.log10(amount) / 3 + 1e-9)), 0), 6)
    return f"{number(amount / 1000**power)} {('', 'k', 'M', 'G', 'T', 'P', 'E')[power]}{unit}"


def _flop_axis(frame: _Frame) -> list[Markup]:
    if frame.flop is None:
        return [base_line(frame.height)]
    return log_columns(
        frame.left, frame.right, frame.height, lambda tick: flops(tick, ""), "FLOP per sample", 3
    )


class _Point(NamedTuple):
    """One operator: x from 0 to 1, y and radius in px."""

    it: OperatorTime
    x: float
    y: float
    radius: float


class _Label(NamedTuple):
    """Where a name is written, and the width of the figure, one of WIDTHS, from which on it is."""

    since: int
    anchor: str
    dx: float
    box: Box


def operator_roofline(operators: Sequence[OperatorTime]) -> Markup | None:
    """Draw the operators whose FLOP/s and FLOP/byte are both known, the longest first.

    None: there is none.
    """
    known = [operator for operator in operators if operator.flop_per_s and operator.flop_per_byte]
    if not known:
        return None
    across = _range([operator.flop_per_byte or 0.0 for operator in known])
    upward = _range([operator.flop_per_s or 0.0 for operator in known])
    points = _points(known, across, upward)
    axes = [
        *log_rows(*upward, _OPERATOR_HEIGHT, lambda tick: flops(tick, "")),
        *log_columns(*across, _OPERATOR_HEIGHT, count, "FLOP/byte", 6),
    ]
    marks = [
        _operator_mark(point, label) for point, label in zip(points, _place(points), strict=True)
    ]
    label = (
        "Operators by FLOP per byte and FLOP per second. Left and right arrow keys read out "
        "the operators, the longest first."
    )
    return figure([*axes, *marks], _OPERATOR_HEIGHT + _OPERATOR_AXIS, label)


def _place(points: Sequence[_Point]) -> list[_Label | None]:
    """Return a label for each of the first _LABELS that have room.

    One covers no circle and no label before it, however wide the figure is.
    """
    circles = [_around(point) for point in points]
    placed: list[_Label | None] = []
    for point in points:
        if sum(label is not None for label in placed) == _LABELS:
            break
        taken = [(WIDTHS[0], circle) for circle in circles] + [
            (label.since, label.box) for label in placed if label
        ]
        places = [
            label._replace(since=since)
            for label in _beside(point)
            if (since := clear_from(label.box, taken, _OPERATOR_HEIGHT))
        ]
        placed.append(min(places, key=lambda label: label.since, default=None))
    return placed + [None] * (len(points) - len(placed))


def _beside(point: _Point) -> list[_Label]:
    wide, away = text_px(shorten(point.it.name, _OPERATOR_NAME)), point.radius + _GAP
    level = (point.y - _LINE / 2, point.y + _LINE / 2)
    right, left = Box(point.x, away, away + wide, *level), Box(point.x, -away - wide, -away, *level)
    above = Box(
        point.x, -wide / 2, wide / 2, point.y - point.radius - _LINE, point.y - point.radius
    )
    below = above._replace(top=point.y + point.radius, bottom=point.y + point.radius + _LINE)
    return [
        _Label(0, "start", away, right),
        _Label(0, "end", -away, left),
        _Label(0, "middle", 0, above),
        _Label(0, "middle", 0, below),
    ]


def _around(point: _Point) -> Box:
    return Box(point.x, -point.radius, point.radius, point.y - point.radius, point.y + point.radius)


def _range(values: Sequence[float]) -> tuple[float, float]:
    return min(values) / _AXES_REACH, max(values) * _AXES_REACH


def _points(
    known: Sequence[OperatorTime], across: tuple[float, float], upward: tuple[float, float]
) -> list[_Point]:
    """Return the longest first, so that none hides a smaller one."""
    on_device = any(operator.device_s for operator in known)
    took = sorted(
        (
            (operator.device_s if on_device else operator.total_s, index)
            for index, operator in enumerate(known)
        ),
        reverse=True,
    )
    longest = took[0][0] or 1.0
    points = []
    for time, index in took:
        operator = known[index]
        y = _OPERATOR_HEIGHT * (1 - log_share(operator.flop_per_s or 0.0, *upward))
        points.append(
            _Point(
                operator,
                log_share(operator.flop_per_byte or 0.0, *across),
                y,
                max(_MIN_RADIUS, _MAX_RADIUS * math.sqrt(time / longest)),
            )
        )
    return points


def _operator_mark(point: _Point, label: _Label | None) -> Markup:
    it = point.it
    took = (
        f"{seconds(it.device_s)} on the device"
        if it.device_s
        else f"{seconds(it.total_s)} on the host"
    )
    tip = (
        f"{it.name}: {flops(it.flop_per_s)}/s at {number(it.flop_per_byte)} FLOP/byte; "
        f"{count(it.count)} calls, {took}"
    )
    parts = [
        tag(
            "circle",
            class_="dot",
            fill_opacity=0.6,
            cx=percent(point.x),
            cy=point.y,
            r=point.radius,
        )
    ]
    if label:
        where = {
            "x": percent(point.x),
            "dx": label.dx,
            "y": label.box.top + _LINE - _GAP,
            "text_anchor": label.anchor,
        }
        parts.append(
            tag("text", shorten(it.name, _OPERATOR_NAME), class_=f"from-{label.since}", **where)
        )
    return tag("g", *parts, class_="point", data_tip=tip)
