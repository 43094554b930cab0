"""What a sample costs in a worker: by stage, and by function of the program as an icicle.

There is one bar per stage, split into CPU, waiting for a CPU, and blocked; and how long single ones
took.
"""

import math
from collections.abc import Callable, Sequence

from markupsafe import Markup

from feedline.analysis.measure.code_places import MAKING
from feedline.analysis.measure.model import Cost, Workers
from feedline.analysis.measure.user_code import CodeLine, UserFunction
from feedline.analysis.report.figures.axis import (
    base_line,
    count_rows,
    figure,
    percent,
    room_class,
    round_up,
    shorten,
    tag,
    text_px,
)
from feedline.analysis.report.palette import Palette
from feedline.analysis.text.formatting import Scale, called, count, seconds, share

_HISTOGRAM_HEIGHT, _HISTOGRAM_AXIS = 120, 22  # px
_MAX_EDGE_LABELS = 4

_Bins = Sequence[tuple[float, int]]
_ROW, _BAR = 24, 14  # px
_ICICLE_ROW = 26  # px
_ICICLE_PADDING = 8  # px
_MOST_DEEP = 12  # functions above one another
_Quote = Callable[[UserFunction, CodeLine], str]


def _filled(bins: _Bins) -> list[tuple[float | None, float, int]]:
    """Return the bins from the first to the last with a sample, as (lower, upper edge, samples).

    The very first has no lower edge.
    """
    edges: list[float | None] = [None, *(edge for edge, _ in bins)]
    all_bins = [(low, high, samples) for low, (high, samples) in zip(edges, bins, strict=False)]
    holding = [index for index, (_, _, samples) in enumerate(all_bins) if samples > 0]
    return all_bins[holding[0] : holding[-1] + 1] if holding else []


def quantile_edge(bins: _Bins, part: float) -> float | None:
    """Return the upper edge of the bin in which ``part`` (0 to 1) of the samples is reached.

    That part took at most so long.
    """
    total = sum(samples for _, samples in bins)
    passed = 0
    for edge, samples in bins:
        passed += samples
        if total and passed >= part * total:
            return edge
    return None


def histogram(bins: _Bins, timed: str = "samples") -> Markup | None:
    """Draw bars of equal width, one a bin; the axis names the bins' edges.

    Args:
        bins: upper edge in s, number.
        timed: what is counted: samples, or batches where each is made in one call.
    """
    shown = _filled(bins)
    if not shown:
        return None
    total = sum(samples for _, _, samples in shown)
    top = round_up(max(samples for _, _, samples in shown), 3)
    parts = count_rows(top, _HISTOGRAM_HEIGHT, 3)
    for index, (low, high, samples) in enumerate(shown):
        span = f"up to {_edge(high)}" if low is None else f"{_edge(low)} to {_edge(high)}"
        tip = f"{span}: {count(samples)} {timed}, {share(samples / total)}"
        height = max(_HISTOGRAM_HEIGHT * samples / top, 1.5 if samples else 0)
        place = {"x": percent(index / len(shown)), "width": percent(1 / len(shown))}
        parts.append(
            tag("rect", class_="bin", y=_HISTOGRAM_HEIGHT - height, height=height, **place)
        )
        parts.append(
            tag("rect", class_="hit", y=0, height=_HISTOGRAM_HEIGHT, data_tip=tip, **place)
        )
    parts += _edges(shown)
    return figure(parts, _HISTOGRAM_HEIGHT + _HISTOGRAM_AXIS, f"Wall time of single {timed}")


def _edge(edge: float) -> str:
    return "more" if math.isinf(edge) else seconds(edge)


def _edges(shown: list[tuple[float | None, float, int]]) -> list[Markup]:
    parts = min(_MAX_EDGE_LABELS, len(shown))
    marks = [base_line(_HISTOGRAM_HEIGHT)]
    for index in (round((part + 1) * len(shown) / parts) for part in range(parts)):
        edge = shown[index - 1][1]
        marks.append(
            tag(
                "text",
                _edge(edge),
                class_="tick x",
                x=percent(index / len(shown)),
                y=_HISTOGRAM_HEIGHT + 16,
            )
        )
    return marks


def sample_cost(workers: Workers, palette: Palette) -> Markup | None:
    """Draw bars on one scale; the largest stage fills the width.

    "total" is left to the table: it would shrink every other bar.
    """
    costs = {stage: cost for stage, cost in workers.per_sample.items() if stage != "total"}
    longest = max((cost.wall_s for cost in costs.values()), default=0.0)
    if not longest > 0:
        return None
    scale = Scale.column(max(cost.wall_s for cost in workers.per_sample.values()))
    rows: list[Markup] = []
    for index, (stage, cost) in enumerate(costs.items()):
        y = index * _ROW
        tip = f"{stage}: {_words(cost, scale)}"
        bars = _bars(cost, longest, y + (_ROW - _BAR) / 2)
        rows.append(tag("text", shorten(stage, 12), class_="tick y name", x=-8, y=y + _ROW / 2 + 4))
        rows.append(tag("g", *bars, class_=palette.css_class(stage), data_tip=tip))
        rows.append(
            tag(
                "text",
                scale.full(cost.wall_s),
                class_="tick amount",
                x=percent(cost.wall_s / longest),
                dx=6,
                y=y + _ROW / 2 + 4,
            )
        )
    label = "Wall time of one sample, by stage"
    return figure(rows, _ROW * len(costs), label)


def is_split(cost: Cost) -> bool:
    """Tell whether all three parts were measured."""
    return None not in (cost.cpu_s, cost.runqueue_s, cost.blocked_s)


def _words(cost: Cost, scale: Scale) -> str:
    """Return one line: ``4.20 ms = 3.90 CPU + 0.20 waiting for CPU + 0.10 blocked``."""
    if not is_split(cost):
        return f"{scale.full(cost.wall_s)}, not split"
    cpu, runqueue, blocked = scale(cost.cpu_s), scale(cost.runqueue_s), scale(cost.blocked_s)
    return f"{scale.full(cost.wall_s)} = {cpu} CPU + {runqueue} waiting for CPU + {blocked} blocked"


def _bars(cost: Cost, longest: float, y: float) -> list[Markup]:
    parts = [("cpu", cost.cpu_s), ("runqueue", cost.runqueue_s), ("blocked", cost.blocked_s)]
    if not is_split(cost):
        parts = [("unsplit", cost.wall_s)]
    bars: list[Markup] = []
    start, end = 0.0, cost.wall_s / longest
    for kind, part_s in parts:
        # clocks that are read one after another can add up to more than the wall time
        width = min(max(0.0, part_s or 0.0) / longest, end - start)
        if width > 0:
            place = {"x": percent(start), "y": y, "width": percent(width), "height": _BAR}
            bars.append(tag("rect", class_=f"part {kind}", **place))
            if kind == "runqueue":
                bars.append(tag("rect", class_="hatch", fill="url(#hatch)", **place))
        start += width
    return bars


def code_icicle(
    functions: Sequence[UserFunction], palette: Palette, quote: _Quote = lambda one, line: ""
) -> Markup | None:
    """Draw functions from left to right, the longest first, and below each those that it calls.

    None without functions.

    Args:
        functions: as a report has them: each followed by those that it calls.
        quote: returns the text of a line, to be shown with it; empty: it is not.
    """
    parts: list[Markup] = []
    starts = [0.0]  # where the next function of each depth begins
    deepest = 0
    for one in functions:
        if one.depth >= _MOST_DEEP or one.depth >= len(starts):
            continue
        start = starts[one.depth]
        parts += _function(one, start, palette.css_class(one.place), quote)
        deepest = max(deepest, one.depth)
        starts[one.depth :] = [start + one.share, start]
    if not parts:
        return None
    return figure(
        parts, _ICICLE_ROW * (deepest + 1), "Functions of the program, by the time they take"
    )


def _function(one: UserFunction, start: float, color: str, quote: _Quote) -> list[Markup]:
    y, name = one.depth * _ICICLE_ROW, called(one.function)
    rect = tag(
        "rect",
        class_=f"segment {color}",
        x=percent(start),
        y=y,
        width=percent(one.share),
        height=_ICICLE_ROW - 1,
        data_tip=_tip(one, quote),
    )
    room = room_class(text_px(name) + _ICICLE_PADDING, one.share)
    if room is None:
        return [rect]
    middle = percent(start + one.share / 2)
    return [rect, tag("text", name, x=middle, y=y + 17, class_=f"in name {color} {room}")]


def _tip(one: UserFunction, quote: _Quote) -> str:
    """``tokenize() data.py:88: 91.0 % of making a sample; line 90: 54.0 %``."""
    lines = "".join(
        f"; line {line.line}: {share(line.share)}{f' in {line.library}' if line.library else ''}"
        f"{f', {text}' if (text := quote(one, line)) else ''}"
        for line in one.lines[:3]
    )
    return (
        f"{called(one.function)} {one.file}:{one.line}: {share(one.share)} of {_base(one)}{lines}"
    )


def _base(one: UserFunction) -> str:
    """Return what a function's share is of, in words."""
    if one.place in MAKING:
        return "making a sample"
    return "the main process" if one.place == "evaluation" else "the step"
