"""Losses, other metrics and the learning rate as the training went on.

They are drawn against samples, updates or time: a page shows one of the three.
"""

from bisect import bisect_right
from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import NamedTuple

from markupsafe import Markup

from feedline.analysis.convergence.curves import words_of_name
from feedline.analysis.convergence.training_record import CurvePoints
from feedline.analysis.report.figures.axis import (
    DECADE,
    FIGURE_UNITS,
    YAxis,
    base_line,
    figure,
    percent,
    short_count,
    shorten,
    spread_labels,
    stretched,
    tag,
    ticks,
)
from feedline.analysis.text.formatting import count, counted, number, seconds

_LOSSES, _OTHERS, _RATE = 190, 110, 56  # px: heights of panels
_TITLE, _GAP, _AXIS = 18, 20, 36  # px: above a panel, below it, and of the axis across
_LABEL_PX, _NAME = 14, 13
_MAX_READ_OUT = 60  # places that can be read out
_DOTS = 30  # points, up to which a curve has dots on it
_PANELS, _CURVES = 3, 6  # of other metrics, and on a panel: more are in the JSON report
_CURVE_COLORS = {"train loss": "c-forward", "eval loss": "c-wait", "lr": "c-compile"}
_USER_COLORS = 6  # palette.USER
_TIMES = ((86400.0, "days"), (3600.0, "hours"), (60.0, "minutes"), (1.0, "seconds"))


class _Panel(NamedTuple):
    """Curves over one axis upwards."""

    title: str
    height: int
    curves: list[CurvePoints]


class _Across(NamedTuple):
    """What the figure is drawn against; ``of`` gives a curve's places, in units of the axis."""

    key: str
    name: str
    of: Callable[[CurvePoints], list[float]]


def loss_curve(
    curves: Sequence[CurvePoints], samples_known: bool = True
) -> list[tuple[str, Markup]]:
    """Draw curves over samples, updates and time: pairs of the axis and its figure.

    Without the first where samples are not known; nothing where no curve has two points.
    """
    drawn = _panels(curves)
    if not any(len(curve.values) > 1 for panel in drawn for curve in panel.curves):
        return []
    longest = max((curve.at_s[-1] for panel in drawn for curve in panel.curves), default=0.0)
    factor, unit = next((pair for pair in _TIMES if longest >= 2 * pair[0]), (1e-3, "milliseconds"))
    axes = (
        _Across("samples", "samples, all ranks together", lambda curve: curve.samples),
        _Across("updates", "updates", lambda curve: [float(made) for made in curve.updates]),
        _Across(
            "time",
            f"{unit} since the first update",
            lambda curve: [at / factor for at in curve.at_s],
        ),
    )
    colors = colors_of(curves)
    return [
        (across.key, _figure(drawn, across, colors, samples_known))
        for across in (axes if samples_known else axes[1:])
    ]


def colors_of(curves: Sequence[CurvePoints]) -> dict[str, str]:
    """Return the name -> CSS class that sets its color."""
    own = [curve.name for curve in curves if curve.name not in _CURVE_COLORS]
    return _CURVE_COLORS | {name: f"c-user{index % _USER_COLORS}" for index, name in enumerate(own)}


def _panels(curves: Sequence[CurvePoints]) -> list[_Panel]:
    """Arrange curves: losses, then metrics of one magnitude together, then the learning rate."""
    there = [curve for curve in curves if curve.values]
    losses = [curve for curve in there if "loss" in words_of_name(curve.name)][:_CURVES]
    listed = [_Panel("loss", _LOSSES, losses)] if losses else []
    rest = sorted(
        (
            curve
            for curve in there
            if "loss" not in words_of_name(curve.name) and curve.name != "lr"
        ),
        key=lambda item: -_size(item),
    )
    groups: list[list[CurvePoints]] = []
    for curve in rest:
        if groups and len(groups[-1]) < _CURVES and _size(curve) * DECADE > _size(groups[-1][0]):
            groups[-1].append(curve)
        else:
            groups.append([curve])
    listed += [
        _Panel(shorten(", ".join(curve.name for curve in group), 40), _OTHERS, group)
        for group in groups[:_PANELS]
    ]
    return listed + [
        _Panel("learning rate", _RATE, [curve]) for curve in there if curve.name == "lr"
    ]


def _size(curve: CurvePoints) -> float:
    return max(abs(value) for value in curve.values)


def _figure(
    drawn: list[_Panel], across: _Across, colors: dict[str, str], samples_known: bool
) -> Markup:
    places = {curve.name: across.of(curve) for panel in drawn for curve in panel.curves}
    end = max(max(place) for place in places.values()) or 1.0
    parts: list[Markup] = []
    y = 0
    for panel in drawn:
        body = _panel(panel, places, end, colors)
        parts.append(tag("g", *body, transform=f"translate(0 {y + _TITLE})"))
        y += _TITLE + panel.height + _GAP
    y -= _GAP
    parts += [*_axis(end, y, across.name), *_read_out(drawn, places, end, y, samples_known)]
    label = f"Training curves by {across.key}. Left and right arrow keys read them out."
    return figure(parts, y + _AXIS, label, f"marks across-{across.key}")


def _panel(
    panel: _Panel, places: dict[str, list[float]], end: float, colors: dict[str, str]
) -> list[Markup]:
    upward = YAxis.over([value for curve in panel.curves for value in curve.values], panel.height)
    title = f"{panel.title}, logarithmic" if upward.log else panel.title
    parts = [
        tag("text", title, class_="tick first", x=0, y=-7),
        *upward.rows(),
        base_line(panel.height),
    ]
    ends: list[tuple[float, str]] = []
    for curve in panel.curves:
        at = [
            (place / end, upward.y(value))
            for place, value in zip(places[curve.name], curve.values, strict=True)
        ]
        along = _held(at) if curve.name == "lr" else at
        line = "M" + "L".join(f"{FIGURE_UNITS * x:.1f} {10 * y:.0f}" for x, y in along)
        kind = f"curve {colors[curve.name]}{'' if curve.name in ('train loss', 'lr') else ' other'}"
        parts.append(
            tag(
                "g",
                stretched(FIGURE_UNITS, panel.height, tag("path", class_="line", d=line)),
                *_dots(at),
                class_=kind,
            )
        )
        ends.append((at[-1][1], curve.name))
    return parts + _names(sorted(ends), panel.height, colors)


def _held(at: list[tuple[float, float]]) -> list[tuple[float, float]]:
    """Return the corners of what keeps its value until the next point, and the last to the end."""
    ends = [x for x, _ in at[1:]] + [1.0]
    return [corner for (x, y), until in zip(at, ends) for corner in ((x, y), (until, y))]


def _dots(at: list[tuple[float, float]]) -> list[Markup]:
    return [tag("circle", cx=percent(x), cy=y, r=2.5) for x, y in at] if len(at) <= _DOTS else []


def _names(ends: list[tuple[float, str]], height: int, colors: dict[str, str]) -> list[Markup]:
    labels = []
    for place, (_, name) in zip(
        spread_labels([place for place, _ in ends], _LABEL_PX, 0, height), ends, strict=True
    ):
        swatch = tag("tspan", "■ ", class_=f"swatch {colors[name]}")
        labels.append(
            tag("text", swatch, shorten(name, _NAME), class_="aside", x="100%", dx=6, y=place + 4)
        )
    return labels


def _axis(end: float, y: float, name: str) -> list[Markup]:
    marks = [base_line(y), tag("text", name, class_="tick x", x="50%", y=y + 32)]
    for tick in ticks(end, most=5):
        marks.append(
            tag(
                "line",
                class_="axis",
                x1=percent(tick / end),
                x2=percent(tick / end),
                y1=y,
                y2=y + 4,
            )
        )
        if tick / end <= 0.97:
            marks.append(
                tag("text", short_count(tick), class_="tick x", x=percent(tick / end), y=y + 17)
            )
    return marks


def _read_out(
    drawn: list[_Panel],
    places: dict[str, list[float]],
    end: float,
    height: float,
    samples_known: bool,
) -> list[Markup]:
    """Draw columns that the pointer and the arrow keys find.

    Each says all curves' values at its place.
    """
    curves = [curve for panel in drawn for curve in panel.curves]
    guide = max(curves, key=lambda curve: len(curve.values))
    chosen = sorted(
        {
            round(index * (len(guide.values) - 1) / (_MAX_READ_OUT - 1))
            for index in range(_MAX_READ_OUT)
        }
    )
    at = [places[guide.name][index] / end for index in chosen]
    edges = [0.0, *((a + b) / 2 for a, b in pairwise(at)), 1.0]
    return [
        tag(
            "rect",
            class_="hit",
            x=percent(left),
            width=percent(max(right - left, 0.0)),
            y=0,
            height=height,
            data_tip=tip,
        )
        for (left, right), tip in zip(
            pairwise(edges),
            (_tip(guide, index, curves, samples_known) for index in chosen),
            strict=True,
        )
    ]


def _tip(guide: CurvePoints, index: int, curves: list[CurvePoints], samples_known: bool) -> str:
    update = guide.updates[index]
    lines = []
    for curve in curves:
        last = bisect_right(curve.updates, update) - 1
        if last >= 0:
            lines.append(f"{curve.name} {number(curve.values[last])}")
    samples = f"{count(guide.samples[index])} samples, " if samples_known else ""
    return f"{samples}{counted(update, 'update')}, {seconds(guide.at_s[index])}: {', '.join(lines)}"
