"""Figures over the run: the mean step (also by rank), the spread and split of steps, and gauges."""

import math
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from markupsafe import Markup

from feedline.analysis.measure.model import Gauge
from feedline.analysis.measure.step_model import StepSeries, StepSummary
from feedline.analysis.ranks.communication import RankParts
from feedline.analysis.report.figures.axis import (
    base_line,
    figure,
    level_line,
    percent,
    room_class,
    round_up,
    shorten,
    spread_labels,
    staircase,
    stretched,
    tag,
    text_px,
    ticks,
)
from feedline.analysis.report.palette import Palette
from feedline.analysis.text.formatting import Scale, count, gauge_value, share

_GAUGE_HEIGHT = 44  # px
_TIME_UNITS = 1000  # units along time
_UNIT_TOPS = {"%": 100.0, "1": 1.0}  # units whose axis ends at all of it
_STEP_BAR_HEIGHT = 46
_THIN = 12
_PADDING = 12
_BAND, _STACK, _GAP, _AXIS = 96, 190, 30, 22  # heights in px
_LABEL_PX = 14
_END_LETTERS = 10  # that fit beside a gauge
_ROW, _BAR = 22, 14  # px
QUEUE_KEY = "queue_s"


def gauge_figure(gauge: Gauge) -> Markup | None:
    """Draw a gauge as a line; None for fewer than two points.

    The axis goes from 0 (or the minimum, if that is below) to the maximum, rounded up; that of a
    share to 100 %.
    """
    points = [
        (at, value) for at, value in zip(gauge.at_s, gauge.values, strict=True) if math.isfinite(at)
    ]
    known = [value for _, value in points if value is not None and math.isfinite(value)]
    if len(known) < 2 or points[-1][0] <= points[0][0]:
        return None
    low = min(0.0, *known)
    high = (
        max(_UNIT_TOPS[gauge.unit], *known)
        if gauge.unit in _UNIT_TOPS
        else low + round_up(max(known) - low)
    )
    line = tag("path", class_="line", d=_line(points, low, high))
    label = f"{gauge.name} over the run"
    base = tag("line", class_="axis", x1=0, x2="100%", y1=_GAUGE_HEIGHT, y2=_GAUGE_HEIGHT)
    top = tag("line", class_="grid", x1=0, x2="100%", y1=0, y2=0)
    ends = [_end(high, gauge.unit, 4), _end(low, gauge.unit, _GAUGE_HEIGHT + 3)]
    return tag(
        "svg",
        top,
        stretched(_TIME_UNITS, _GAUGE_HEIGHT, line),
        base,
        *ends,
        width="100%",
        height=_GAUGE_HEIGHT + 1,
        role="img",
        aria_label=label,
    )


def _end(edge: float, unit: str, y: int) -> Markup:
    words = gauge_value(edge, unit).replace(".0 %", " %")
    if len(words) > _END_LETTERS:  # the name of what is counted stands above the figure
        words = words.partition(" ")[0]
    return tag("text", shorten(words, _END_LETTERS), class_="tick", x="100%", dx=6, y=y)


def _line(points: list[tuple[float, float]], low: float, high: float) -> str:
    """Draw relative moves between whole units.

    A value that is missing lifts the pen.
    """
    start, end = points[0][0], points[-1][0]
    path: list[str] = []
    pen: tuple[int, int] | None = None
    for at, value in points:
        if value is None or not math.isfinite(value):
            pen = None
            continue
        x = round(_TIME_UNITS * (at - start) / (end - start))
        y = round(10 * _GAUGE_HEIGHT * (1 - (value - low) / (high - low)))
        path.append(f"M{x} {y}" if pen is None else f"l{x - pen[0]} {y - pen[1]}")
        pen = (x, y)
    return "".join(path).replace(" -", "-")


def step_bar(step: StepSummary, palette: Palette) -> Markup | None:
    """Draw stages from left to right in the order they happen.

    Numbers are those of the list below the bar.
    """
    total = sum(step.stages.values())
    if not total > 0:
        return None
    scale = Scale.column(total)
    parts: list[Markup] = []
    start = 0.0
    for index, (stage, seconds) in enumerate(step.stages.items(), start=1):
        width = seconds / total
        if width <= 0:
            continue
        tip = f"{index} {stage}: {scale.full(seconds)}, {share(width)} of the step"
        kind = f"segment {palette.css_class(stage)}"
        parts.append(
            tag(
                "rect",
                class_=kind,
                x=percent(start),
                y=0,
                width=percent(width),
                height=_STEP_BAR_HEIGHT,
                data_tip=tip,
            )
        )
        parts += _labels(index, stage, scale.full(seconds), start, width, palette.css_class(stage))
        start += width
    words = "Mean step of " + scale.full(step.mean_s)
    return figure(parts, _STEP_BAR_HEIGHT, f"{words}, by stage")


def thin_bar(stages: Mapping[str, float], full: float, palette: Palette) -> Markup | None:
    """Draw the split of a step as one line of a table.

    Without labels, on a scale that ends at ``full`` seconds.
    """
    rects: list[Markup] = []
    start = 0.0
    for stage, seconds in stages.items():
        width = max(0.0, seconds) / full
        rects.append(
            tag(
                "rect",
                class_=f"segment {palette.css_class(stage)}",
                x=percent(start),
                y=0,
                width=percent(width),
                height=_THIN,
            )
        )
        start += width
    return tag("svg", *rects, width="100%", height=_THIN, aria_hidden="true") if rects else None


def _labels(
    index: int, stage: str, amount: str, start: float, width: float, color: str
) -> list[Markup]:
    middle = percent(start + width / 2)
    full = room_class(max(text_px(stage), text_px(amount)) + _PADDING, width)
    short = room_class(text_px(str(index)) + 4, width)
    labels = []
    if full:
        labels.append(tag("text", stage, x=middle, y=20, class_=f"in name {color} {full}"))
        labels.append(tag("text", amount, x=middle, y=36, class_=f"in {color} {full}"))
    if short and short != full:
        until = full.replace("from", "until") if full else ""
        labels.append(
            tag("text", index, x=middle, y=28, class_=f"in {color} {short} {until}".rstrip())
        )
    return labels


def step_series(series: StepSeries, palette: Palette, shown: str = "step") -> Markup | None:
    """Draw both panels over one axis of step numbers.

    None for fewer than two columns: there is no course to show.

    Args:
        series: to be drawn.
        palette: colors of the stages.
        shown: what its steps are called.
    """
    if len(series.steps) < 2:
        return None
    top = _axis_top(series)
    lower = _BAND + _GAP
    return tag(
        "svg",
        *_grid(top, _BAND, 0, most=3),
        _band(series, top),
        *_beyond(series, top),
        *_grid(top, _STACK, lower, most=4),
        _stack(series, palette, top, lower),
        *_names(series, palette, top, lower),
        *_steps_axis(sum(series.steps), lower + _STACK, shown),
        tag("line", class_="cursor", x1=0, x2=0, y1=0, y2=lower + _STACK, visibility="hidden"),
        width="100%",
        height=lower + _STACK + _AXIS,
        role="img",
        tabindex=0,
        class_="columns",
        aria_label="Step time over the run. Left and right arrow keys read it out column by "
        "column.",
    )


def _axis_top(series: StepSeries) -> float:
    """Return where both panels' axes end, in seconds.

    It is a round number of the unit they are labeled in.
    """
    totals = [
        sum(max(0.0, values[i]) for values in series.stages.values())
        for i in range(len(series.steps))
    ]
    level = _clip_level(series.wall_max_s, totals)
    unit = Scale.of_seconds(level, digits=1).factor
    return round_up(level / unit) * unit


def count_beyond_axis(series: StepSeries) -> int:
    """Count the columns that have a longest step above the axis."""
    top = _axis_top(series)
    return sum(peak > top for peak in series.wall_max_s)


def _grid(top: float, height: int, y: float, most: int) -> list[Markup]:
    scale = Scale.of_seconds(top, digits=1)
    values = ticks(top / scale.factor, most)
    return [
        mark
        for tick in values
        for mark in level_line(
            y + height * (1 - tick * scale.factor / top), f"{tick:g} {scale.unit}"
        )
    ]


def _levels(values: Sequence[float], top: float, height: int) -> list[float]:
    return [10 * height * (1 - min(max(value, 0.0) / top, 1.0)) for value in values]


def _band(series: StepSeries, top: float) -> Markup:
    widths = [float(steps) for steps in series.steps]
    high, low = _levels(series.wall_max_s, top, _BAND), _levels(series.wall_min_s, top, _BAND)
    back = staircase(widths[::-1], low[::-1]).replace("h", "h-").replace("M0 ", "V", 1)
    band = tag("path", class_="band", d=staircase(widths, high) + back + "z")
    line = tag("path", class_="median", d=staircase(widths, _levels(series.wall_s, top, _BAND)))
    return stretched(sum(widths), _BAND, band, line)


def _beyond(series: StepSeries, top: float) -> list[Markup]:
    total, passed, marks = sum(series.steps), 0, []
    for steps, peak in zip(series.steps, series.wall_max_s, strict=True):
        if peak > top:
            marks.append(
                tag(
                    "svg",
                    tag("path", class_="beyond", d="M-3.5 -1h7l-3.5-6z"),
                    x=percent((passed + steps / 2) / total),
                    y=0,
                )
            )
        passed += steps
    return marks


def _stack(series: StepSeries, palette: Palette, top: float, y: float) -> Markup:
    """Draw areas from the highest sum to the lowest, each painted over the one before.

    That makes one edge per stage instead of two.
    """
    sums = [0.0] * len(series.steps)
    layers: list[Markup] = []
    for stage, values in series.stages.items():
        sums = [total + max(0.0, value) for total, value in zip(sums, values, strict=True)]
        path = staircase(
            [float(steps) for steps in series.steps],
            _levels(sums, top, _STACK),
            close_at=10 * _STACK,
        )
        layers.append(tag("path", class_=f"area {palette.css_class(stage)}", d=path))
    return stretched(sum(series.steps), _STACK, *reversed(layers), y=y)


def _names(series: StepSeries, palette: Palette, top: float, y: float) -> list[Markup]:
    """Return names to the right of the stack, at the height where each band ends, moved apart.

    Bands too thin for a name have none.
    """
    tail = slice(-max(1, len(series.steps) // 20), None)
    wanted: list[tuple[float, str]] = []
    below = 0.0
    for stage, values in series.stages.items():
        mean = sum(values[tail]) / len(values[tail])
        if mean / top * _STACK >= _LABEL_PX / 3 and below + mean / 2 <= top:
            wanted.append((y + _STACK * (1 - (below + mean / 2) / top), stage))
        below += mean
    wanted.sort()
    places = spread_labels([place for place, _ in wanted], _LABEL_PX, y + 6, y + _STACK)
    labels = []
    for place, (_, stage) in zip(places, wanted, strict=True):
        swatch = tag("tspan", "■ ", class_=f"swatch {palette.css_class(stage)}")
        labels.append(
            tag("text", swatch, shorten(stage, 13), class_="aside", x="100%", dx=6, y=place + 4)
        )
    return labels


def _steps_axis(total: int, y: float, shown: str) -> list[Markup]:
    marks = [base_line(y)]
    for tick in ticks(total, most=5):
        if tick / total <= 0.97 and tick == int(tick):
            words = f"{shown} {count(tick)}" if tick == 0 else count(tick)
            marks.append(
                tag(
                    "text",
                    words,
                    class_="tick x" if tick else "tick first",
                    x=percent(tick / total),
                    y=y + 16,
                )
            )
    return marks


class _Part(NamedTuple):
    """How a field of ``RankParts`` is shown.

    It has words, a column of the terminal, and the class of its color.
    """

    words: str
    short: str
    color: str


#: Green moves and red waits, as in the stages of a step; what backward hides is the light one.
PART_LABELS = {
    "compute_s": _Part("all else", "all else", "c-forward"),
    "hidden_transfer_s": _Part("transfer hidden by backward", "transfer, hidden", "c-transport"),
    "exposed_transfer_s": _Part("exposed transfer", "transfer, exposed", "c-pin"),
    "hidden_wait_s": _Part("waiting hidden by backward", "waiting, hidden", "c-sampler"),
    "exposed_wait_s": _Part("exposed waiting", "waiting, exposed", "c-wait"),
    QUEUE_KEY: _Part("queue behind other collectives", "queue", "c-checkpoint"),
}


def rank_parts(parts: Mapping[str, RankParts]) -> Markup | None:
    """Draw bars on one scale, the first rank on top.

    Args:
        parts: by rank.
    """
    totals = {
        rank: sum(getattr(own, name) or 0.0 for name in PART_LABELS) for rank, own in parts.items()
    }
    longest = max(totals.values(), default=0.0)
    if longest <= 0:
        return None
    scale = Scale.column(longest)
    marks: list[Markup] = []
    for row, (rank, own) in enumerate(parts.items()):
        y, start = row * _ROW, 0.0
        marks.append(tag("text", f"rank {rank}", class_="tick name y", x=-8, y=y + 11))
        for name, (words, _, color) in PART_LABELS.items():
            width = (getattr(own, name) or 0.0) / longest
            if width <= 0:
                continue
            tip = (
                f"rank {rank}, {words}: {scale.full(getattr(own, name))}, "
                f"{share(width * longest / totals[rank])} of its step"
            )
            place = {"x": percent(start), "y": y, "width": percent(width), "height": _BAR}
            marks.append(tag("rect", class_=f"segment {color}", **place, data_tip=tip))
            start += width
        marks.append(
            tag("text", scale.full(totals[rank]), class_="tick amount", x="100%", dx=8, y=y + 11)
        )
    label = (
        "Mean step of each rank, split into its parts. Left and right arrow keys read out the "
        "parts."
    )
    return figure(marks, _ROW * len(parts), label)


def _clip_level(peaks: Sequence[float], stack: Sequence[float]) -> float:
    """Return how high a series' axis should go.

    It goes over everything, unless a few peaks would flatten the rest. Peaks are left out of the
    axis (and marked) only when the highest is more than twice the 95th percentile of the peaks.
    """
    ordered = sorted(peaks)
    usual = ordered[min(len(ordered) - 1, math.floor(0.95 * len(ordered)))]
    top = ordered[-1] if ordered[-1] <= 2 * usual else 1.25 * usual
    return max(top, *stack) if max(stack) <= 2 * usual else top
