"""The gradient noise scale window by window, and the batch: below the line a larger batch still pays, above it samples are spent."""

from markupsafe import Markup

from feedline.analysis.convergence.model import NoiseOverTraining, NoiseWindow
from feedline.analysis.formatting import count, number
from feedline.analysis.report.figures.axis import base_line, interval, ticks
from feedline.analysis.report.figures.svg import figure, percent, tag
from feedline.analysis.report.figures.upward import YAxis, thousands

_HEIGHT, _AXIS = 180, 36
_REACH = 8.0  # how far beyond values and batch an interval is drawn, as a factor: one of few updates reaches from nothing to anything
_ABOVE, _LINE = 16, 14  # px


def noise_scale(noise: NoiseOverTraining, batch: float | None, samples: float) -> Markup | None:
    """None without a window that knows its value or a bound.

    Args:
        batch: samples per update, all ranks together.
        samples: trained on in all.
    """
    known = [window for window in noise.windows if any(_positive(window))]
    if not known:
        return None
    marks = [mark for window in known for mark in ([window.value] if window.value else _positive(window))] + ([batch] if batch else [])
    bounds = [bound for window in known for bound in _positive(window) if min(marks) / _REACH <= bound <= max(marks) * _REACH]
    upward = YAxis.over([*marks, *bounds, min(marks) / 1.5, max(marks) * 1.5], _HEIGHT, log=True)
    end = max(samples, *(window.samples for window in known), 1.0)
    parts = [*upward.rows(), base_line(_HEIGHT), *_axis(end)]
    parts += [_window(window, window.samples / end, upward) for window in known]
    parts += _batch(batch, upward) if batch else []
    label = "Gradient noise scale over the training. Left and right arrow keys read out its parts."
    return figure(parts, _HEIGHT + _AXIS, label)


def _positive(window: NoiseWindow) -> list[float]:
    return [bound for bound in (window.value, window.low, window.high) if bound is not None and bound > 0]


def _window(window: NoiseWindow, x: float, upward: YAxis) -> Markup:
    where = f"at {count(round(window.samples))} samples, from {count(window.updates)} updates"
    if window.value is not None:
        said = f"{number(window.value)}{_between(window)}"
        low, high = window.low or upward.low, window.high or upward.high
        mark = tag("circle", class_="dot", cx=percent(x), cy=upward.y(window.value), r=3.5)
    elif window.low:
        said, low, high = f"at least {number(window.low)} ({window.why})", window.low, upward.high
        mark = _arrow(x, upward.y(low), 0)
    else:
        bound = window.high or upward.low
        said, low, high = f"at most {number(bound)} ({window.why})", upward.low, bound
        mark = _arrow(x, upward.y(high), 180)
    y1, y2 = upward.y(low), upward.y(high)
    bar = interval(x, y1, y2)
    hit = tag("svg", tag("rect", class_="hit", x=-9, width=18, y=y2 - 6, height=y1 - y2 + 12), x=percent(x), class_="beside")
    return tag("g", bar, mark, hit, class_="point", data_tip=f"noise scale {said}, {where}")


def _between(window: NoiseWindow) -> str:
    return "" if window.low is None or window.high is None else f" ({number(window.low)} to {number(window.high)})"


def _arrow(x: float, y: float, turn: int) -> Markup:
    """A mark that points to where the value is: up, or turned down."""
    path = tag("path", class_="dot", d="M-4.5 3h9l-4.5-8z", transform=f"translate(0 {y:.1f}) rotate({turn})")
    return tag("svg", path, x=percent(x), class_="beside")


def _batch(batch: float, upward: YAxis) -> list[Markup]:
    y = upward.y(batch)
    return [
        tag("line", class_="drop", x1=0, x2="100%", y1=y, y2=y),
        tag("text", f"batch {count(batch)}", class_="tick last halo", x="100%", y=y - 5 if y > _ABOVE else y + _LINE),
    ]


def _axis(end: float) -> list[Markup]:
    marks = [tag("text", "samples, all ranks together", class_="tick x", x="50%", y=_HEIGHT + 32)]
    for tick in ticks(end, most=4):
        if tick / end <= 0.97:
            marks.append(tag("text", thousands(tick), class_="tick x", x=percent(tick / end), y=_HEIGHT + 17))
    return marks
