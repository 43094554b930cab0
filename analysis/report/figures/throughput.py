"""Throughput against workers, ranks and batch sizes.

It is what is predicted with its band, and what was measured.
"""

import math
from collections.abc import Callable, Sequence

from markupsafe import Markup

from feedline.analysis.explain.model import Sweep
from feedline.analysis.predict.search import Candidate, Search
from feedline.analysis.report.figures.axis import (
    FIGURE_UNITS,
    base_line,
    count_rows,
    drop_line,
    figure,
    interval_bar,
    line_path,
    percent,
    round_up,
    stretched,
    tag,
)
from feedline.analysis.scaling.efficiency import ScalingRow
from feedline.analysis.scaling.more_ranks import ThroughputPrediction
from feedline.analysis.scaling.study import Study
from feedline.analysis.scaling.study import counted as counted_ranks
from feedline.analysis.text.formatting import count, counted, number, share
from feedline.analysis.text.formatting import rate as format_rate

_Scale = Callable[[float], float]
_RANKS_HEIGHT, _RANKS_AXIS = 220, 36
_RANKS_EDGE = 0.04  # room left and right of the points, as a share of the width
_MAX_RANK_LABELS = 24  # labels
_BATCH_HEIGHT, _BATCH_AXIS = 180, 36
_MAX_SIZE_LABELS = 6
_WORKERS_HEIGHT, _WORKERS_AXIS = 220, 36
_WORKERS_EDGE = 0.04  # room left and right of the points, as a share of the width


def throughput_by_ranks(study: Study) -> Markup:
    """Draw throughput by ranks on two even axes, on which linear scaling is a straight line.

    Bars are intervals; dots are measured, rings predicted.
    """
    drawn = [prediction for prediction in study.predictions if prediction.samples_per_s is not None]
    ranks = sorted(
        {*(row.point.ranks for row in study.rows), *(prediction.ranks for prediction in drawn)}
    )
    first = study.rows[0].point
    peaks = [
        first.samples_per_s / first.ranks * ranks[-1],
        *(row.point.high or row.point.samples_per_s for row in study.rows),
    ]
    top = round_up(max([*peaks, *(prediction.high or 0.0 for prediction in drawn)]))
    x = _even_scale(ranks, _RANKS_EDGE)

    def y(rate: float) -> float:
        return _RANKS_HEIGHT * (1 - rate / top)

    parts = count_rows(top, _RANKS_HEIGHT)
    if not study.refused:
        ideal = [(x(n), y(first.samples_per_s / first.ranks * n)) for n in (ranks[0], ranks[-1])]
        path = tag("path", class_="line", d=line_path(ideal))
        parts.append(tag("g", stretched(FIGURE_UNITS, _RANKS_HEIGHT, path), class_="roof part"))
    line = [(x(row.point.ranks), y(row.point.samples_per_s)) for row in study.rows]
    parts.append(
        stretched(FIGURE_UNITS, _RANKS_HEIGHT, tag("path", class_="line", d=line_path(line)))
    )
    parts += [_measured_ranks(row, x(row.point.ranks), y, study.unit) for row in study.rows]
    parts += [
        _predicted_ranks(prediction, x(prediction.ranks), y, study.unit) for prediction in drawn
    ]
    parts += _count_columns(ranks, list(map(x, ranks)), _RANKS_HEIGHT, "ranks", _MAX_RANK_LABELS)
    what = study.unit.replace("/s", " per second").capitalize()
    label = (
        f"{what} by number of ranks. Left and right arrow keys read out the points, measured "
        f"ones first."
    )
    return figure(parts, _RANKS_HEIGHT + _RANKS_AXIS, label)


def _measured_ranks(row: ScalingRow, x: float, y: _Scale, unit: str) -> Markup:
    point = row.point
    spread = (
        f" ({format_rate(point.low)} to {format_rate(point.high)})" if point.low is not None else ""
    )
    flag = ", flagged: more than 100 %" if row.flagged else ""
    worth = "" if row.efficiency is None else f", efficiency {share(row.efficiency)}"
    tip = f"{counted_ranks(point.ranks)}: {format_rate(point.samples_per_s)} {unit}{spread}{worth}{flag}"
    dot = tag("circle", class_="dot", cx=percent(x), cy=y(point.samples_per_s), r=4)
    return _rank_point(x, y(point.samples_per_s), _bar(x, y, point.low, point.high), tip, dot)


def _predicted_ranks(prediction: ThroughputPrediction, x: float, y: _Scale, unit: str) -> Markup:
    assert prediction.samples_per_s is not None
    spread = f"({format_rate(prediction.low)} to {format_rate(prediction.high)})"
    tip = (
        f"{counted_ranks(prediction.ranks)}, predicted with {prediction.model}: "
        f"{format_rate(prediction.samples_per_s)} {unit} {spread}"
    )
    ring = tag("circle", class_="ring", cx=percent(x), cy=y(prediction.samples_per_s), r=5)
    return _rank_point(
        x, y(prediction.samples_per_s), _bar(x, y, prediction.low, prediction.high), tip, ring
    )


def _bar(x: float, y: _Scale, low: float | None, high: float | None) -> Markup | None:
    if low is None or high is None:
        return None
    return interval_bar(x, y(low), y(high))


def _rank_point(x: float, y: float, bar: Markup | None, tip: str, mark: Markup) -> Markup:
    return tag(
        "g",
        bar,
        mark,
        tag("circle", class_="hit", cx=percent(x), cy=y, r=12),
        class_="point",
        data_tip=tip,
    )


def batch_sweep(sweep: Sweep) -> Markup:
    """Draw a line through the measured batch sizes, on an axis of doublings.

    Bars reach from the slowest to the fastest round.
    """
    top = round_up(max(sweep.high + sweep.samples_per_s))
    at = list(map(_doubling_scale(sweep.batch_sizes), sweep.batch_sizes))
    levels = [_BATCH_HEIGHT * (1 - rate / top) for rate in sweep.samples_per_s]
    path = line_path(list(zip(at, levels)))
    knee = drop_line(
        at[sweep.batch_sizes.index(sweep.knee)], _BATCH_HEIGHT, f"knee: {count(sweep.knee)}"
    )
    parts = [
        *count_rows(top, _BATCH_HEIGHT),
        *knee,
        stretched(FIGURE_UNITS, _BATCH_HEIGHT, tag("path", class_="line", d=path)),
    ]
    for index, (x, y) in enumerate(zip(at, levels, strict=True)):
        parts.append(_point(sweep, index, x, y, top))
    parts += _count_columns(sweep.batch_sizes, at, _BATCH_HEIGHT, "batch size", _MAX_SIZE_LABELS)
    label = "Throughput by batch size. Left and right arrow keys read out the sizes."
    return figure(parts, _BATCH_HEIGHT + _BATCH_AXIS, label)


def _point(sweep: Sweep, index: int, x: float, y: float, top: float) -> Markup:
    size = sweep.batch_sizes[index]
    rate = sweep.samples_per_s[index]
    slow = sweep.low[index]
    fast = sweep.high[index]
    knee = ", the knee" if size == sweep.knee else ""
    tip = (
        f"batch of {count(size)}: {number(rate)} samples/s ({number(slow)} to {number(fast)}){knee}"
    )
    bar = interval_bar(x, _BATCH_HEIGHT * (1 - slow / top), _BATCH_HEIGHT * (1 - fast / top))
    hit = tag("circle", class_="hit", cx=percent(x), cy=y, r=12)
    return tag(
        "g",
        bar,
        tag("circle", class_="dot", cx=percent(x), cy=y, r=3.5),
        hit,
        class_="point",
        data_tip=tip,
    )


def throughput_by_workers(search: Search) -> Markup:
    """Draw a line through the predictions by workers, in the band of their intervals.

    The ring is the setting to take, the dot the measured one.
    """
    drawn = search.by_workers
    most = max(1, drawn[-1].workers)
    top = round_up(
        max([search.now.predicted.before, *(candidate.predicted.high for candidate in drawn)])
    )
    places = [_place(candidate.workers, most) for candidate in drawn]

    def y(rate: float) -> float:
        return _WORKERS_HEIGHT * (1 - rate / top)

    lows, highs = ([(x, y(rate)) for x, rate in zip(places, rates)] for rates in _band(drawn))
    band = tag(
        "path", class_="band", fill_opacity=0.5, d=f"{line_path([*highs, *reversed(lows)])}Z"
    )
    line = tag(
        "path",
        class_="line",
        d=line_path([(x, y(candidate.predicted.after)) for x, candidate in zip(places, drawn)]),
    )
    parts = [
        *count_rows(top, _WORKERS_HEIGHT),
        stretched(FIGURE_UNITS, _WORKERS_HEIGHT, band, line),
    ]
    parts += [
        _predicted_point(
            candidate, x, y(candidate.predicted.after), candidate.workers == search.best.workers
        )
        for x, candidate in zip(places, drawn)
    ]
    parts.append(
        _measured_point(
            search.now, _place(min(search.now.workers, most), most), y(search.now.predicted.before)
        )
    )
    parts += _count_columns(
        [candidate.workers for candidate in drawn],
        places,
        _WORKERS_HEIGHT,
        "workers",
        2 * len(drawn),
    )
    label = (
        "Samples per second by number of workers. Left and right arrow keys read out the "
        "predictions, then what was measured."
    )
    return figure(parts, _WORKERS_HEIGHT + _WORKERS_AXIS, label)


def _place(number_of: int, most: int) -> float:
    return _WORKERS_EDGE + (1 - 2 * _WORKERS_EDGE) * number_of / most


def _band(drawn: list[Candidate]) -> tuple[list[float], list[float]]:
    return [candidate.predicted.low for candidate in drawn], [
        candidate.predicted.high for candidate in drawn
    ]


def _predicted_point(candidate: Candidate, x: float, y: float, chosen: bool) -> Markup:
    rate = candidate.predicted
    tip = (
        f"{_named(candidate.workers)}, predicted: {format_rate(rate.after)} samples/s "
        f"({format_rate(rate.low)} to {format_rate(rate.high)})"
    )
    ring = tag("circle", class_="ring", cx=percent(x), cy=y, r=6 if chosen else 3.5)
    hit = tag("circle", class_="hit", cx=percent(x), cy=y, r=12)
    return tag("g", ring, hit, class_="point", data_tip=f"{tip}, the advice" if chosen else tip)


def _measured_point(now: Candidate, x: float, y: float) -> Markup:
    dot = tag("circle", class_="dot", cx=percent(x), cy=y, r=4)
    hit = tag("circle", class_="hit", cx=percent(x), cy=y, r=9)
    return tag(
        "g",
        dot,
        hit,
        class_="point",
        data_tip=f"{_named(now.workers)}, measured: {format_rate(now.predicted.before)} samples/s",
    )


def _named(workers_of: int) -> str:
    return counted(workers_of, "worker") if workers_of else "no workers"


def _count_columns(
    counts: Sequence[float], places: Sequence[float], y: float, name: str, most: int
) -> list[Markup]:
    """Draw counts at their places (0 to 1) below a line at ``y`` px, and the name of the axis.

    As many as have room.
    """
    marks, last = [base_line(y), tag("text", name, class_="tick x", x="50%", y=y + 32)], -1.0
    for value, x in zip(counts, places, strict=True):
        if x - last >= 1 / most:
            marks.append(tag("text", count(value), class_="tick x", x=percent(x), y=y + 16))
            last = x
    return marks


def _even_scale(values: Sequence[float], edge: float = 0.0) -> Callable[[float], float]:
    """Return places (0 to 1) on a linear axis from the first to the last value.

    A single one stands in the middle.

    Args:
        values: ascending.
        edge: room left and right of them, as a share of the width.
    """
    low, high = values[0], values[-1]
    return lambda value: (
        edge + (1 - 2 * edge) * ((value - low) / (high - low) if high > low else 0.5)
    )


def _doubling_scale(values: Sequence[float], edge: float = 0.0) -> Callable[[float], float]:
    """Return places (0 to 1) on an axis of doublings from the first to the last value.

    A single one stands in the middle.

    Args:
        values: ascending.
        edge: room left and right of them, as a share of the width.
    """
    low, high = math.log(values[0]), math.log(values[-1])
    return lambda value: (
        edge + (1 - 2 * edge) * ((math.log(value) - low) / (high - low) if high > low else 0.5)
    )
