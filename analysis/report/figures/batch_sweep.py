"""Throughput of the model alone against its batch size, with the knee from which on a larger batch brings next to nothing."""

from markupsafe import Markup

from feedline.analysis.explain.model import Sweep
from feedline.analysis.formatting import count, number
from feedline.analysis.report.figures.axis import count_columns, count_rows, doublings, drop, interval, round_up
from feedline.analysis.report.figures.svg import WIDTH, figure, line_path, percent, stretched, tag

_HEIGHT, _AXIS = 180, 36
_MOST_LABELS = 6


def batch_sweep(sweep: Sweep) -> Markup:
    """A line through the measured sizes, on an axis of doublings; bars reach from the slowest to the fastest round."""
    top = round_up(max(sweep.high + sweep.samples_per_s))
    at = list(map(doublings(sweep.batch_sizes), sweep.batch_sizes))
    levels = [_HEIGHT * (1 - rate / top) for rate in sweep.samples_per_s]
    path = line_path(list(zip(at, levels)))
    knee = drop(at[sweep.batch_sizes.index(sweep.knee)], _HEIGHT, f"knee: {count(sweep.knee)}")
    parts = [*count_rows(top, _HEIGHT), *knee, stretched(WIDTH, _HEIGHT, tag("path", class_="line", d=path))]
    for index, (x, y) in enumerate(zip(at, levels, strict=True)):
        parts.append(_point(sweep, index, x, y, top))
    parts += count_columns(sweep.batch_sizes, at, _HEIGHT, "batch size", _MOST_LABELS)
    label = "Throughput by batch size. Left and right arrow keys read out the sizes."
    return figure(parts, _HEIGHT + _AXIS, label)


def _point(sweep: Sweep, index: int, x: float, y: float, top: float) -> Markup:
    size, rate, slow, fast = sweep.batch_sizes[index], sweep.samples_per_s[index], sweep.low[index], sweep.high[index]
    knee = ", the knee" if size == sweep.knee else ""
    tip = f"batch of {count(size)}: {number(rate)} samples/s ({number(slow)} to {number(fast)}){knee}"
    bar = interval(x, _HEIGHT * (1 - slow / top), _HEIGHT * (1 - fast / top))
    hit = tag("circle", class_="hit", cx=percent(x), cy=y, r=12)
    return tag("g", bar, tag("circle", class_="dot", cx=percent(x), cy=y, r=3.5), hit, class_="point", data_tip=tip)
