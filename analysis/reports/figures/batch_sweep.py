"""Throughput of the model alone against its batch size, with the knee from which on a larger batch brings next to nothing."""

import math

from markupsafe import Markup

from feedline.analysis.model import Sweep
from feedline.analysis.quantities import count, number
from feedline.analysis.reports.figures.axis import round_up, ticks
from feedline.analysis.reports.figures.svg import percent, stretched, tag

HEIGHT, AXIS, WIDTH = 180, 36, 1000
MOST_LABELS = 6


def batch_sweep(sweep: Sweep) -> Markup:
    """A line through the measured sizes, on an axis of doublings; bars reach from the slowest to the fastest round."""
    top = round_up(max(sweep.high + sweep.samples_per_s))
    low, high = math.log(sweep.batch_sizes[0]), math.log(sweep.batch_sizes[-1])
    at = [(math.log(size) - low) / (high - low) for size in sweep.batch_sizes]
    levels = [HEIGHT * (1 - rate / top) for rate in sweep.samples_per_s]
    path = "M" + "L".join(f"{WIDTH * x:.0f} {10 * y:.0f}" for x, y in zip(at, levels, strict=True))
    parts = [*_grid(top), *_knee(sweep, at), stretched(WIDTH, HEIGHT, tag("path", class_="line", d=path))]
    for index, (x, y) in enumerate(zip(at, levels, strict=True)):
        parts.append(_point(sweep, index, x, y, top))
    parts += _sizes(sweep, at)
    label = "Throughput by batch size. Left and right arrow keys read out the sizes."
    return tag("svg", *parts, width="100%", height=HEIGHT + AXIS, role="img", tabindex=0, class_="marks", aria_label=label)


def _point(sweep: Sweep, index: int, x: float, y: float, top: float) -> Markup:
    size, rate, slow, fast = sweep.batch_sizes[index], sweep.samples_per_s[index], sweep.low[index], sweep.high[index]
    knee = ", the knee" if size == sweep.knee else ""
    tip = f"batch of {count(size)}: {number(rate)} samples/s ({number(slow)} to {number(fast)}){knee}"
    ends = {"y1": HEIGHT * (1 - slow / top), "y2": HEIGHT * (1 - fast / top)}
    bar = tag("line", class_="spread", x1=percent(x), x2=percent(x), **ends)
    hit = tag("circle", class_="hit", cx=percent(x), cy=y, r=12)
    return tag("g", bar, tag("circle", class_="dot", cx=percent(x), cy=y, r=3.5), hit, class_="point", data_tip=tip)


def _knee(sweep: Sweep, at: list[float]) -> list[Markup]:
    x = at[sweep.batch_sizes.index(sweep.knee)]
    side = "first" if x < 0.5 else "last"
    words = tag("text", f"knee: {count(sweep.knee)}", class_=f"tick {side}", x=percent(x), dx=6 if x < 0.5 else -6, y=HEIGHT - 8)
    return [tag("line", class_="drop", x1=percent(x), x2=percent(x), y1=0, y2=HEIGHT), words]


def _grid(top: float) -> list[Markup]:
    marks: list[Markup] = []
    for tick in ticks(top):
        y = HEIGHT * (1 - tick / top)
        marks += [tag("line", class_="grid", x1=0, x2="100%", y1=y, y2=y), tag("text", count(tick), class_="tick y", x=-8, y=y + 4)]
    return marks


def _sizes(sweep: Sweep, at: list[float]) -> list[Markup]:
    marks = [tag("line", class_="axis", x1=0, x2="100%", y1=HEIGHT, y2=HEIGHT)]
    gap, last = 1 / MOST_LABELS, -1.0
    for size, x in zip(sweep.batch_sizes, at, strict=True):
        if x - last >= gap:
            marks.append(tag("text", count(size), class_="tick x", x=percent(x), y=HEIGHT + 16))
            last = x
    return [*marks, tag("text", "batch size", class_="tick x", x="50%", y=HEIGHT + 32)]
