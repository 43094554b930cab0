"""The run among its roofs, on two logarithmic axes: FLOP a sample across, samples/s upwards.

What a FLOP rate bounds (the device, its work, the step itself) falls along a diagonal; everything else is level. Every line ends at the
right edge, where its label is, moved apart from the others along a leader.
"""

import math
from typing import NamedTuple

from markupsafe import Markup

from feedline.analysis.explain.model import Roofline, ThroughputBound
from feedline.analysis.formatting import count, number
from feedline.analysis.report.figures.axis import base_line, log_columns, log_rows, log_share, spread
from feedline.analysis.report.figures.svg import cut, figure, percent, tag
from feedline.analysis.report.palette import COLORS

_LOWEST, _LABEL_PX, _AXIS = 280, 14, 36  # px
_LEADER = 16  # px from the right edge to a label
_LEFT_OF_RUN, _RIGHT_OF_RUN = 30.0, 3.0  # how far the x axis reaches, as factors
_ABOVE, _BELOW = 1.4, 1.3  # the same of the y axis, around what is on it
_DIAGONAL = ("device", "step", "gpu")
_NAME, _AMOUNT = 16, 9  # characters of a label


class Frame(NamedTuple):
    """What part of the plane is drawn. Without FLOP, the run stands in the middle and there is no x axis."""

    flop: float | None
    left: float
    right: float
    bottom: float
    top: float
    height: float

    def x(self, flop: float) -> float:
        """0 to 1."""
        return log_share(flop, self.left, self.right)

    def y(self, rate: float) -> float:
        """px."""
        return self.height * (1 - log_share(rate, self.bottom, self.top))

    def at_edge(self, roof: ThroughputBound) -> float:
        """samples/s of a roof at the right edge."""
        falls = self.flop is not None and roof.kind in _DIAGONAL
        return roof.samples_per_s * (self.flop or 0.0) / self.right if falls else roof.samples_per_s


def roofline_figure(made: Roofline) -> Markup | None:
    """Lines with numbers, which are those of the table below the figure. None without a roof."""
    if not made.roofs:
        return None
    frame = _frame_of(made)
    if not 0 < frame.bottom < frame.top < float("inf"):  # rates that no machine has
        return None
    run = frame.x(made.flop_per_sample) if made.flop_per_sample else 0.5
    ends = sorted((frame.y(frame.at_edge(roof)), index) for index, roof in enumerate(made.roofs))
    labels = spread([end for end, _ in ends], _LABEL_PX, 4, frame.height)
    place = {index: label for label, (_, index) in zip(labels, ends, strict=True)}
    roofs = [_roof(frame, made, index, place[index]) for index in range(len(made.roofs))]
    parts = [*log_rows(frame.bottom, frame.top, frame.height, count), *_flop_axis(frame), *roofs, _run(frame, made, run)]
    label = "Roofline of the run. Left and right arrow keys read out the limits, the lowest first, then the run."
    height = round(frame.height) + _AXIS
    return figure(parts, height, label)


def _frame_of(made: Roofline) -> Frame:
    """Around the run and all ends of its roofs."""
    flop = made.flop_per_sample
    left, right = (flop / _LEFT_OF_RUN, flop * _RIGHT_OF_RUN) if flop else (1.0, 10.0)
    unscaled = Frame(flop, left, right, 1.0, 2.0, 1.0)
    rates = [made.samples_per_s, *(roof.samples_per_s for roof in made.roofs), *(unscaled.at_edge(roof) for roof in made.roofs)]
    height = float(max(_LOWEST, _LABEL_PX * (len(made.roofs) + 1)))
    return Frame(flop, left, right, min(rates) / _BELOW, max(rates) * _ABOVE, height)


def role(made: Roofline, roof: ThroughputBound) -> str:
    """How its line is drawn: ``nearest``, ``next``, ``bound``, or ``part`` (of something, or an alternative)."""
    if roof.id in (made.nearest_id, made.next_id):
        return "nearest" if roof.id == made.nearest_id else "next"
    return "bound" if roof.binds else "part"


def _roof(frame: Frame, made: Roofline, index: int, label: float) -> Markup:
    roof = made.roofs[index]
    end = frame.y(frame.at_edge(roof))
    begin, left = end, 0.0
    if frame.flop is not None and roof.kind in _DIAGONAL:
        rate_flops = roof.samples_per_s * frame.flop
        reaches = max(rate_flops / frame.top, frame.left)
        begin, left = frame.y(rate_flops / reaches), frame.x(reaches)
    ends = {"x1": percent(left), "y1": begin, "x2": "100%", "y2": end}
    mark = {"nearest": "binding limit", "next": "next limit"}.get(role(made, roof))
    tip = f"{index + 1} {roof.name}: {number(roof.samples_per_s)} samples/s{f', the {mark}' if mark else ''}. {roof.message}; {roof.source}"
    beside = tag(
        "svg",
        tag("path", class_="leader", d=f"M1 {end:.1f}h3L{_LEADER - 5} {label:.1f}h3"),
        tag("text", _mark(index + 1), f" {cut(roof.name, _NAME)} ", _mark(cut(number(roof.samples_per_s), _AMOUNT)), **_at(label, "aside")),
        tag("text", index + 1, **_at(label, "within mark")),
        x="100%",
        class_="beside",
    )
    color = f" c-{roof.id}" if roof.id in COLORS else ""
    lines = [tag("line", class_="line", **ends), tag("line", class_="hit", **ends)]
    return tag("g", *lines, beside, class_=f"roof {role(made, roof)} of-{roof.kind}{color}", data_tip=tip)


def _mark(text: object) -> Markup:
    return tag("tspan", text, class_="mark")


def _at(label: float, kind: str) -> dict[str, object]:
    return {"x": _LEADER, "y": label + 4, "class_": kind}


def _run(frame: Frame, made: Roofline, x: float) -> Markup:
    y = frame.y(made.samples_per_s)
    spread_of = "" if made.low is None or made.high is None else f" ({number(made.low)} to {number(made.high)})"
    flop = f" at {flops(made.flop_per_sample)} per sample" if made.flop_per_sample else ""
    tip = f"this run: {number(made.samples_per_s)} samples/s{spread_of}{flop}"
    drop = tag("line", class_="drop", x1=percent(x), x2=percent(x), y1=y, y2=frame.height)
    ring, dot = (tag("circle", class_=kind, cx=percent(x), cy=y, r=radius) for kind, radius in (("ring", 7), ("dot", 4)))
    return tag("g", *([drop] if frame.flop else []), ring, dot, class_="run", data_tip=tip)


def flops(amount: float | None, unit: str = "FLOP") -> str:
    """``1.82 GFLOP``"""
    if not amount:
        return f"0 {unit}"
    power = min(max(int(math.floor(math.log10(amount) / 3 + 1e-9)), 0), 6)
    return f"{number(amount / 1000**power)} {('', 'k', 'M', 'G', 'T', 'P', 'E')[power]}{unit}"


def _flop_axis(frame: Frame) -> list[Markup]:
    if frame.flop is None:
        return [base_line(frame.height)]
    return log_columns(frame.left, frame.right, frame.height, lambda tick: flops(tick, ""), "FLOP per sample", 3)
