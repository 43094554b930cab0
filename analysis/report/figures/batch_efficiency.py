"""What a batch costs: samples and updates to a loss over the fewest possible, by batch. The two cross at the noise scale, at twice each."""

import math
from collections.abc import Callable

from markupsafe import Markup

from feedline.analysis.convergence.batch_cost import samples_factor, updates_factor
from feedline.analysis.convergence.model import NoiseOverTraining
from feedline.analysis.formatting import count, number
from feedline.analysis.report.figures.axis import drop, log_columns, log_share
from feedline.analysis.report.figures.svg import WIDTH, figure, line_path, percent, stretched, tag
from feedline.analysis.report.figures.upward import YAxis, thousands

_HEIGHT, _AXIS = 180, 36
_AROUND = 8.0  # how far the axis reaches beyond the run's batch and the noise scale, as a factor
_POINTS = 40
_TALLEST = 1000.0  # of the axis upwards


def batch_efficiency(noise: NoiseOverTraining, batch: float) -> Markup | None:
    """E/Emin = 1 + B/Bc with the band of the noise scale's range, S/Smin = 1 + Bc/B; the run's own batch is marked. None without Bc."""
    critical = noise.value
    if not critical or critical <= 0 or not batch > 0:
        return None
    left, right = min(batch, critical) / _AROUND, max(batch, critical) * _AROUND
    at = [left * (right / left) ** (index / _POINTS) for index in range(_POINTS + 1)]
    top = min(max(1 + right / critical, 1 + critical / left), _TALLEST)
    upward = YAxis(1.0, top, True, _HEIGHT)

    def x(size: float) -> float:
        return log_share(size, left, right)

    spent = [(x(size), upward.y(1 + size / critical)) for size in at]
    made = [(x(size), upward.y(updates_factor(size, critical))) for size in at]
    low, high = noise.low or 0.0, noise.high or math.inf
    upper = [(x(size), upward.y(1 + size / low if low > 0 else math.inf)) for size in at]
    lower = [(x(size), upward.y(1 + size / high)) for size in at]
    parts = [*upward.rows(), stretched(WIDTH, _HEIGHT, tag("path", class_="interval", d=line_path(upper + lower[::-1]) + "z"))]
    parts += [tag("g", stretched(WIDTH, _HEIGHT, tag("path", class_="line", d=line_path(made))), class_="roof part")]
    parts += [stretched(WIDTH, _HEIGHT, tag("path", class_="line", d=line_path(spent)))]
    parts += log_columns(left, right, _HEIGHT, thousands, "batch, samples of all ranks together", 6)
    parts += [*drop(x(batch), _HEIGHT, f"this run: {count(batch)}"), *_points(noise, batch, left, right, x, upward)]
    label = "Samples and updates needed, relative to the minimum, by batch. Left and right arrow keys read out batches."
    return figure(parts, _HEIGHT + _AXIS, label)


def _points(noise: NoiseOverTraining, batch: float, left: float, right: float, x: Callable[[float], float], upward: YAxis) -> list[Markup]:
    """Doublings of the run's own batch."""
    sizes = [batch * 2.0**power for power in range(-12, 13)]
    critical = noise.value or 1.0
    marks = []
    for size in sizes:
        if not (left <= size <= right and size >= 1):
            continue
        y = upward.y(1 + size / critical)
        mine = size == batch
        dot = tag("circle", class_="ring" if mine else "dot", cx=percent(x(size)), cy=y, r=6 if mine else 2.5)
        hit = tag("circle", class_="hit", cx=percent(x(size)), cy=y, r=11)
        marks.append(tag("g", dot, hit, class_="point", data_tip=_tip(noise, size, mine)))
    return marks


def _tip(noise: NoiseOverTraining, size: float, mine: bool) -> str:
    critical = noise.value or 1.0
    ends = [samples_factor(size, bound) for bound in (noise.high, noise.low) if bound]
    between = f" ({number(ends[0])} to {number(ends[1])})" if len(ends) == 2 else ""
    who = "this run's batch of" if mine else "a batch of"
    return (
        f"{who} {count(size)}: {number(samples_factor(size, critical))} times the minimum samples{between}, "
        f"{number(updates_factor(size, critical))} times the minimum updates"
    )
