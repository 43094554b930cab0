"""The mean step as one horizontal stacked bar."""

from collections.abc import Mapping

from markupsafe import Markup

from feedline.analysis.formatting import Scale, share
from feedline.analysis.measure.model import StepSummary
from feedline.analysis.report.figures.svg import figure, percent, room, tag, text_px
from feedline.analysis.report.palette import Palette

_HEIGHT = 46
_THIN = 12
_PADDING = 12


def step_bar(step: StepSummary, palette: Palette) -> Markup | None:
    """Stages from left to right in the order they happen; numbers are those of the list below the bar."""
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
        parts.append(tag("rect", class_=kind, x=percent(start), y=0, width=percent(width), height=_HEIGHT, data_tip=tip))
        parts += _labels(index, stage, scale.full(seconds), start, width, palette.css_class(stage))
        start += width
    words = "Mean step of " + scale.full(step.mean_s)
    return figure(parts, _HEIGHT, f"{words}, by stage")


def thin_bar(stages: Mapping[str, float], full: float, palette: Palette) -> Markup | None:
    """The same split as one line of a table: without labels, on a scale that ends at ``full`` seconds."""
    rects: list[Markup] = []
    start = 0.0
    for stage, seconds in stages.items():
        width = max(0.0, seconds) / full
        rects.append(tag("rect", class_=f"segment {palette.css_class(stage)}", x=percent(start), y=0, width=percent(width), height=_THIN))
        start += width
    return tag("svg", *rects, width="100%", height=_THIN, aria_hidden="true") if rects else None


def _labels(index: int, stage: str, amount: str, start: float, width: float, color: str) -> list[Markup]:
    middle = percent(start + width / 2)
    full = room(max(text_px(stage), text_px(amount)) + _PADDING, width)
    short = room(text_px(str(index)) + 4, width)
    labels = []
    if full:
        labels.append(tag("text", stage, x=middle, y=20, class_=f"in name {color} {full}"))
        labels.append(tag("text", amount, x=middle, y=36, class_=f"in {color} {full}"))
    if short and short != full:
        until = full.replace("from", "until") if full else ""
        labels.append(tag("text", index, x=middle, y=28, class_=f"in {color} {short} {until}".rstrip()))
    return labels
