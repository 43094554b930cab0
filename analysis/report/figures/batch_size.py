"""Figures of the batch size.

They show the noise scale window by window, and what a batch costs in samples and updates.
"""

import math
from collections.abc import Callable

from markupsafe import Markup

from feedline.analysis.convergence.target import samples_factor, updates_factor
from feedline.analysis.convergence.training_record import NoiseOverTraining, NoiseWindow
from feedline.analysis.report.figures.axis import (
    FIGURE_UNITS,
    YAxis,
    base_line,
    drop_line,
    figure,
    interval_bar,
    line_path,
    log_columns,
    log_share,
    percent,
    short_count,
    stretched,
    tag,
    ticks,
)
from feedline.analysis.text.formatting import count, number

_EFFICIENCY_HEIGHT, _BATCH_AXIS = 180, 36
# how far the axis reaches beyond the run's batch and the noise scale, as a factor
_AXIS_REACH = 8.0
_CURVE_POINTS = 40
_TALLEST = 1000.0  # of the axis upwards
_NOISE_HEIGHT, _TIME_AXIS = 180, 36
# how far beyond values and batch an interval is drawn, as a factor: one of few updates reaches from
# nothing to anything
_INTERVAL_REACH = 8.0
_ABOVE, _LINE = 16, 14  # px


def batch_efficiency(noise: NoiseOverTraining, batch: float) -> Markup | None:
    """Draw samples and updates over the fewest possible, by batch; None without Bc.

    E/Emin = 1 + B/Bc with the band of the noise scale's range, S/Smin = 1 + Bc/B; the run's own
    batch is marked.
    """
    critical = noise.value
    if not critical or critical <= 0 or not batch > 0:
        return None
    left, right = min(batch, critical) / _AXIS_REACH, max(batch, critical) * _AXIS_REACH
    at = [left * (right / left) ** (index / _CURVE_POINTS) for index in range(_CURVE_POINTS + 1)]
    top = min(max(1 + right / critical, 1 + critical / left), _TALLEST)
    upward = YAxis(1.0, top, True, _EFFICIENCY_HEIGHT)

    def x(size: float) -> float:
        return log_share(size, left, right)

    spent = [(x(size), upward.y(1 + size / critical)) for size in at]
    points = [(x(size), upward.y(updates_factor(size, critical))) for size in at]
    low, high = noise.low or 0.0, noise.high or math.inf
    upper = [(x(size), upward.y(1 + size / low if low > 0 else math.inf)) for size in at]
    lower = [(x(size), upward.y(1 + size / high)) for size in at]
    parts = [
        *upward.rows(),
        stretched(
            FIGURE_UNITS,
            _EFFICIENCY_HEIGHT,
            tag("path", class_="interval", d=line_path(upper + lower[::-1]) + "z"),
        ),
    ]
    parts += [
        tag(
            "g",
            stretched(
                FIGURE_UNITS, _EFFICIENCY_HEIGHT, tag("path", class_="line", d=line_path(points))
            ),
            class_="roof part",
        )
    ]
    parts += [
        stretched(FIGURE_UNITS, _EFFICIENCY_HEIGHT, tag("path", class_="line", d=line_path(spent)))
    ]
    parts += log_columns(
        left, right, _EFFICIENCY_HEIGHT, short_count, "batch, samples of all ranks together", 6
    )
    parts += [
        *drop_line(x(batch), _EFFICIENCY_HEIGHT, f"this run: {count(batch)}"),
        *_points(noise, batch, left, right, x, upward),
    ]
    label = (
        "Samples and updates needed, relative to the minimum, by batch. Left and right arrow "
        "keys read out batches."
    )
    return figure(parts, _EFFICIENCY_HEIGHT + _BATCH_AXIS, label)


def _points(
    noise: NoiseOverTraining,
    batch: float,
    left: float,
    right: float,
    x: Callable[[float], float],
    upward: YAxis,
) -> list[Markup]:
    """Return the doublings of the run's own batch."""
    sizes = [batch * 2.0**power for power in range(-12, 13)]
    critical = noise.value or 1.0
    marks = []
    for size in sizes:
        if not (left <= size <= right and size >= 1):
            continue
        y = upward.y(1 + size / critical)
        mine = size == batch
        dot = tag(
            "circle",
            class_="ring" if mine else "dot",
            cx=percent(x(size)),
            cy=y,
            r=6 if mine else 2.5,
        )
        hit = tag("circle", class_="hit", cx=percent(x(size)), cy=y, r=11)
        marks.append(tag("g", dot, hit, class_="point", data_tip=_tip(noise, size, mine)))
    return marks


def _tip(noise: NoiseOverTraining, size: float, mine: bool) -> str:
    critical = noise.value or 1.0
    ends = [samples_factor(size, bound) for bound in (noise.high, noise.low) if bound]
    between = f" ({number(ends[0])} to {number(ends[1])})" if len(ends) == 2 else ""
    who = "this run's batch of" if mine else "a batch of"
    return (
        f"{who} {count(size)}: {number(samples_factor(size, critical))} times the minimum "
        f"samples{between}, "
        f"{number(updates_factor(size, critical))} times the minimum updates"
    )


def noise_scale(noise: NoiseOverTraining, batch: float | None, samples: float) -> Markup | None:
    """Draw the noise scale over the training.

    None without a window that knows its value or a bound.

    Args:
        noise: of the training.
        batch: samples per update, all ranks together.
        samples: trained on in all.
    """
    known = [window for window in noise.windows if any(_positive(window))]
    if not known:
        return None
    marks = [
        mark for window in known for mark in ([window.value] if window.value else _positive(window))
    ] + ([batch] if batch else [])
    bounds = [
        bound
        for window in known
        for bound in _positive(window)
        if min(marks) / _INTERVAL_REACH <= bound <= max(marks) * _INTERVAL_REACH
    ]
    upward = YAxis.over(
        [*marks, *bounds, min(marks) / 1.5, max(marks) * 1.5], _NOISE_HEIGHT, log=True
    )
    end = max(samples, *(window.samples for window in known), 1.0)
    parts = [*upward.rows(), base_line(_NOISE_HEIGHT), *_axis(end)]
    parts += [_window(window, window.samples / end, upward) for window in known]
    parts += _batch(batch, upward) if batch else []
    label = "Gradient noise scale over the training. Left and right arrow keys read out its parts."
    return figure(parts, _NOISE_HEIGHT + _TIME_AXIS, label)


def _positive(window: NoiseWindow) -> list[float]:
    return [
        bound
        for bound in (window.value, window.low, window.high)
        if bound is not None and bound > 0
    ]


def _window(window: NoiseWindow, x: float, upward: YAxis) -> Markup:
    where = f"at {count(round(window.samples))} samples, from {count(window.updates)} updates"
    if window.value is not None:
        words = f"{number(window.value)}{_between(window)}"
        low, high = window.low or upward.low, window.high or upward.high
        mark = tag("circle", class_="dot", cx=percent(x), cy=upward.y(window.value), r=3.5)
    elif window.low:
        words, low, high = f"at least {number(window.low)} ({window.why})", window.low, upward.high
        mark = _arrow(x, upward.y(low), 0)
    else:
        bound = window.high or upward.low
        words, low, high = f"at most {number(bound)} ({window.why})", upward.low, bound
        mark = _arrow(x, upward.y(high), 180)
    y1, y2 = upward.y(low), upward.y(high)
    bar = interval_bar(x, y1, y2)
    hit = tag(
        "svg",
        tag("rect", class_="hit", x=-9, width=18, y=y2 - 6, height=y1 - y2 + 12),
        x=percent(x),
        class_="beside",
    )
    return tag("g", bar, mark, hit, class_="point", data_tip=f"noise scale {words}, {where}")


def _between(window: NoiseWindow) -> str:
    return (
        ""
        if window.low is None or window.high is None
        else f" ({number(window.low)} to {number(window.high)})"
    )


def _arrow(x: float, y: float, turn: int) -> Markup:
    """Draw a mark that points to where the value is: up, or turned down."""
    path = tag(
        "path",
        class_="dot",
        d="M-4.5 3h9l-4.5-8z",
        transform=f"translate(0 {y:.1f}) rotate({turn})",
    )
    return tag("svg", path, x=percent(x), class_="beside")


def _batch(batch: float, upward: YAxis) -> list[Markup]:
    y = upward.y(batch)
    return [
        tag("line", class_="drop", x1=0, x2="100%", y1=y, y2=y),
        tag(
            "text",
            f"batch {count(batch)}",
            class_="tick last halo",
            x="100%",
            y=y - 5 if y > _ABOVE else y + _LINE,
        ),
    ]


def _axis(end: float) -> list[Markup]:
    marks = [
        tag("text", "samples, all ranks together", class_="tick x", x="50%", y=_NOISE_HEIGHT + 32)
    ]
    for tick in ticks(end, most=4):
        if tick / end <= 0.97:
            marks.append(
                tag(
                    "text",
                    short_count(tick),
                    class_="tick x",
                    x=percent(tick / end),
                    y=_NOISE_HEIGHT + 17,
                )
            )
    return marks
