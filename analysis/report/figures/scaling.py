"""Throughput against the number of ranks: what was measured, what is predicted with its interval, and the line of N times one."""

from collections.abc import Callable

from markupsafe import Markup

from feedline.analysis.formatting import number, share
from feedline.analysis.report.figures.axis import count_columns, count_rows, evenly, interval, round_up
from feedline.analysis.report.figures.svg import WIDTH, figure, line_path, percent, stretched, tag
from feedline.analysis.scaling.conclusion import counted
from feedline.analysis.scaling.efficiency import Row
from feedline.analysis.scaling.predict import Prediction
from feedline.analysis.scaling.study import Study

_Scale = Callable[[float], float]
_HEIGHT, _AXIS = 220, 36
_EDGE = 0.04  # room left and right of the points, as a share of the width
_MOST = 24  # labels


def scaling(study: Study) -> Markup:
    """Points on two even axes, on which linear scaling is a straight line; bars are intervals; dots are measured, rings predicted."""
    drawn = [one for one in study.predictions if one.samples_per_s is not None]
    ranks = sorted({*(row.point.ranks for row in study.rows), *(one.ranks for one in drawn)})
    first = study.rows[0].point
    peaks = [first.samples_per_s / first.ranks * ranks[-1], *(row.point.high or row.point.samples_per_s for row in study.rows)]
    top = round_up(max([*peaks, *(one.high or 0.0 for one in drawn)]))
    x = evenly(ranks, _EDGE)

    def y(rate: float) -> float:
        return _HEIGHT * (1 - rate / top)

    parts = count_rows(top, _HEIGHT)
    if not study.refused:
        ideal = [(x(n), y(first.samples_per_s / first.ranks * n)) for n in (ranks[0], ranks[-1])]
        path = tag("path", class_="line", d=line_path(ideal))
        parts.append(tag("g", stretched(WIDTH, _HEIGHT, path), class_="roof part"))
    line = [(x(row.point.ranks), y(row.point.samples_per_s)) for row in study.rows]
    parts.append(stretched(WIDTH, _HEIGHT, tag("path", class_="line", d=line_path(line))))
    parts += [_measured(row, x(row.point.ranks), y, study.unit) for row in study.rows]
    parts += [_predicted(one, x(one.ranks), y, study.unit) for one in drawn]
    parts += count_columns(ranks, list(map(x, ranks)), _HEIGHT, "ranks", _MOST)
    what = study.unit.replace("/s", " per second").capitalize()
    label = f"{what} by number of ranks. Left and right arrow keys read out the points, measured ones first."
    return figure(parts, _HEIGHT + _AXIS, label)


def _measured(row: Row, x: float, y: _Scale, unit: str) -> Markup:
    point = row.point
    spread = f" ({number(point.low)} to {number(point.high)})" if point.low is not None else ""
    flag = ", flagged: more than 100 %" if row.flagged else ""
    worth = "" if row.efficiency is None else f", efficiency {share(row.efficiency)}"
    tip = f"{counted(point.ranks)}: {number(point.samples_per_s)} {unit}{spread}{worth}{flag}"
    dot = tag("circle", class_="dot", cx=percent(x), cy=y(point.samples_per_s), r=4)
    return _point(x, y(point.samples_per_s), _bar(x, y, point.low, point.high), tip, dot)


def _predicted(one: Prediction, x: float, y: _Scale, unit: str) -> Markup:
    assert one.samples_per_s is not None
    spread = f"({number(one.low)} to {number(one.high)})"
    tip = f"{counted(one.ranks)}, predicted with {one.model}: {number(one.samples_per_s)} {unit} {spread}"
    ring = tag("circle", class_="ring", cx=percent(x), cy=y(one.samples_per_s), r=5)
    return _point(x, y(one.samples_per_s), _bar(x, y, one.low, one.high), tip, ring)


def _bar(x: float, y: _Scale, low: float | None, high: float | None) -> Markup | None:
    if low is None or high is None:
        return None
    return interval(x, y(low), y(high))


def _point(x: float, y: float, bar: Markup | None, tip: str, mark: Markup) -> Markup:
    return tag("g", bar, mark, tag("circle", class_="hit", cx=percent(x), cy=y, r=12), class_="point", data_tip=tip)
