"""Time to a target by number of workers, with its band: how fast the steps are times how many of them the larger batch still needs."""

import math
from collections.abc import Sequence

from markupsafe import Markup

from feedline.analysis.convergence.model import TimeToTarget
from feedline.analysis.formatting import Scale, count, counted, seconds
from feedline.analysis.reports.figures.axis import count_columns, doublings, interval, level_line, log_ticks, nice_step
from feedline.analysis.reports.figures.svg import figure, line_path, percent, stretched, tag
from feedline.analysis.reports.figures.upward import YAxis

HEIGHT, AXIS, WIDTH = 200, 36, 1000
EDGE = 0.04  # room left and right of the points, as a share of the width
UNITS = ((3600.0, "h"), (60.0, "min"))


def time_to_target(rows: Sequence[TimeToTarget]) -> Markup | None:
    """Points on an axis of doublings; dots are of measured steps, rings of predicted ones. None where no row has a time."""
    known = sorted((row for row in rows if row.time_s is not None and row.time_s > 0), key=lambda row: row.workers)
    if not known:
        return None
    upward = YAxis.over([bound for row in known for bound in _bounds(row)], HEIGHT)
    workers = [row.workers for row in known]
    places = list(map(doublings(workers, EDGE), workers))
    ends = [_bounds(row) for row in known]
    band = [(place, upward.y(max(end))) for place, end in zip(places, ends, strict=True)]
    band += [(place, upward.y(min(end))) for place, end in zip(places[::-1], ends[::-1], strict=True)]
    line = [(place, upward.y(row.time_s or 0.0)) for place, row in zip(places, known, strict=True)]
    parts = [*_rows(upward), stretched(WIDTH, HEIGHT, tag("path", class_="interval", d=line_path(band) + "z"))]
    parts += [stretched(WIDTH, HEIGHT, tag("path", class_="line", d=line_path(line))), *count_columns(workers, places, HEIGHT, "ranks")]
    parts += [_point(row, place, upward) for row, place in zip(known, places, strict=True)]
    label = "Time to the target by number of ranks. Left and right arrow keys read out the points."
    return figure(parts, HEIGHT + AXIS, label)


def _bounds(row: TimeToTarget) -> list[float]:
    return [bound for bound in (row.low_s, row.time_s, row.high_s) if bound is not None and bound > 0]


def _point(row: TimeToTarget, x: float, upward: YAxis) -> Markup:
    y, ends = upward.y(row.time_s or 0.0), _bounds(row)
    bar = interval(x, upward.y(min(ends)), upward.y(max(ends)))
    measured = row.source == "measured"
    dot = tag("circle", class_="dot" if measured else "ring", cx=percent(x), cy=y, r=4 if measured else 5)
    hit = tag("circle", class_="hit", cx=percent(x), cy=y, r=12)
    between = "" if row.low_s is None or row.high_s is None else f" ({seconds(row.low_s)} to {seconds(row.high_s)})"
    ranks = counted(row.workers, "rank")
    tip = f"{ranks}, batch {count(row.batch)}: {seconds(row.time_s)}{between}; step time: {row.source}"
    return tag("g", bar, dot, hit, class_="point", data_tip=tip)


def _rows(upward: YAxis) -> list[Markup]:
    """Level lines at round numbers of a unit of time."""
    factor, unit = next(((factor, unit) for factor, unit in UNITS if upward.high >= 2 * factor), (0.0, ""))
    if not factor:
        factor, unit = (scale := Scale.of_seconds(upward.high, digits=1)).factor, scale.unit
    low, high = upward.low / factor, upward.high / factor
    if upward.log:
        found = log_ticks(low, high, round(HEIGHT / 40))
    else:
        step = nice_step(high - low, round(HEIGHT / 40))
        found = [step * index for index in range(math.ceil(low / step - 1e-9), math.floor(high / step + 1e-9) + 1)]
    return [mark for tick in found for mark in level_line(upward.y(tick * factor), f"{tick:g} {unit}")]
