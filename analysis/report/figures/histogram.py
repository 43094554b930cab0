"""How long single samples took."""

import math
from collections.abc import Sequence

from markupsafe import Markup

from feedline.analysis.formatting import count, seconds, share
from feedline.analysis.report.figures.axis import base_line, count_rows, round_up
from feedline.analysis.report.figures.svg import figure, percent, tag

_HEIGHT, _AXIS = 120, 22  # px
_MOST_LABELS = 4

Bins = Sequence[tuple[float, int]]


def _filled(bins: Bins) -> list[tuple[float | None, float, int]]:
    """(lower edge, upper edge, samples) of the bins from the first to the last with a sample. The very first has no lower edge."""
    edges: list[float | None] = [None, *(edge for edge, _ in bins)]
    all_bins = [(low, high, samples) for low, (high, samples) in zip(edges, bins, strict=False)]
    holding = [index for index, (_, _, samples) in enumerate(all_bins) if samples > 0]
    return all_bins[holding[0] : holding[-1] + 1] if holding else []


def at_most(bins: Bins, part: float) -> float | None:
    """The upper edge of the bin in which ``part`` (0 to 1) of the samples is reached: that part took at most so long."""
    total = sum(samples for _, samples in bins)
    passed = 0
    for edge, samples in bins:
        passed += samples
        if total and passed >= part * total:
            return edge
    return None


def histogram(bins: Bins) -> Markup | None:
    """Bars of equal width, one a bin; the axis names the bins' edges."""
    shown = _filled(bins)
    if not shown:
        return None
    total = sum(samples for _, _, samples in shown)
    top = round_up(max(samples for _, _, samples in shown), 3)
    parts = count_rows(top, _HEIGHT, 3)
    for index, (low, high, samples) in enumerate(shown):
        span = f"up to {_edge(high)}" if low is None else f"{_edge(low)} to {_edge(high)}"
        tip = f"{span}: {count(samples)} samples, {share(samples / total)}"
        height = max(_HEIGHT * samples / top, 1.5 if samples else 0)
        place = {"x": percent(index / len(shown)), "width": percent(1 / len(shown))}
        parts.append(tag("rect", class_="bin", y=_HEIGHT - height, height=height, **place))
        parts.append(tag("rect", class_="hit", y=0, height=_HEIGHT, data_tip=tip, **place))
    parts += _edges(shown)
    return figure(parts, _HEIGHT + _AXIS, "Wall time of single samples")


def _edge(edge: float) -> str:
    return "more" if math.isinf(edge) else seconds(edge)


def _edges(shown: list[tuple[float | None, float, int]]) -> list[Markup]:
    parts = min(_MOST_LABELS, len(shown))
    marks = [base_line(_HEIGHT)]
    for index in (round((part + 1) * len(shown) / parts) for part in range(parts)):
        edge = shown[index - 1][1]
        marks.append(tag("text", _edge(edge), class_="tick x", x=percent(index / len(shown)), y=_HEIGHT + 16))
    return marks
