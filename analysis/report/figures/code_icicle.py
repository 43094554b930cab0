"""Functions of the program as an icicle: as wide as the time that they take, each below its caller."""

from collections.abc import Callable, Sequence

from markupsafe import Markup

from feedline.analysis.measure.code_places import MAKING
from feedline.analysis.measure.user_code import CodeLine, UserFunction
from feedline.analysis.report.figures.svg import figure, percent, room_class, tag, text_px
from feedline.analysis.report.palette import Palette
from feedline.analysis.text.formatting import called, share

_ROW = 26  # px
_PADDING = 8  # px
_MOST_DEEP = 12  # functions above one another

_Quote = Callable[[UserFunction, CodeLine], str]


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
    return figure(parts, _ROW * (deepest + 1), "Functions of the program, by the time they take")


def _function(one: UserFunction, start: float, color: str, quote: _Quote) -> list[Markup]:
    y, name = one.depth * _ROW, called(one.function)
    rect = tag(
        "rect",
        class_=f"segment {color}",
        x=percent(start),
        y=y,
        width=percent(one.share),
        height=_ROW - 1,
        data_tip=_tip(one, quote),
    )
    room = room_class(text_px(name) + _PADDING, one.share)
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
