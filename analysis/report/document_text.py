"""Draws a document as text: on a terminal, into a pipe, into a file.

Nothing is said by color alone, and no line is cut.
"""

from collections.abc import Iterable
from functools import singledispatch
from itertools import chain

from rich.console import RenderableType
from rich.padding import Padding
from rich.segment import Segment, SegmentLines
from rich.table import Table as Grid
from rich.text import Text

from feedline.analysis.report.console import Console
from feedline.analysis.report.document import (
    Alert,
    Bars,
    Block,
    Document,
    Field,
    Fields,
    Headline,
    Note,
    Table,
    Title,
)
from feedline.profiler.printable import printable

WIDTH = 80
COLORS = {
    "wait": "red",
    "input": "yellow",
    "move": "green",
    "compute": "blue",
    "rest": "bright_black",
    "user": "cyan",
}
_LABEL, _INDENT, _GAP = 6, 2, 2
_BAR = 30  # characters of the longest bar
_TOGETHER = {(Headline, Fields), (Bars, Note), (Note, Note)}  # without a blank line between them


def show(document: Document, console: Console) -> None:
    """Print a document, at most 80 columns wide; a path or a command may be longer."""
    width = min(WIDTH, console.width)
    for block, after in zip(document.blocks, [*document.blocks[1:], None]):
        for line in _drawn(block, width):
            _print(line, console, width)
        if after is not None and not _belongs(after, block):
            console.print()


def _belongs(block: Block, before: Block) -> bool:
    """Return whether a block stands directly below the one before it."""
    return (type(before), type(block)) in _TOGETHER


def _print(line: RenderableType, console: Console, width: int) -> None:
    if isinstance(line, Text) and line.no_wrap:
        console.print(line, soft_wrap=True)
    else:
        printed(line, console, width)


def printed(body: RenderableType, console: Console, width: int) -> None:
    """Print something of rich's without blanks at the ends of lines."""
    options = console.options.update(width=width, highlight=False)
    lines = [_stripped(line) for line in console.render_lines(body, options, pad=False)]
    console.print(SegmentLines(lines, new_lines=True), end="")


def _stripped(line: list[Segment]) -> list[Segment]:
    kept = list(line)
    while kept and not kept[-1].text.strip(" "):
        kept.pop()
    return [*kept[:-1], Segment(kept[-1].text.rstrip(" "), kept[-1].style)] if kept else []


def plain(text: object, style: str = "") -> Text:
    """Return text as it is: no markup, and nothing that a terminal would act on."""
    return Text(printable(text), style=style, overflow="fold")


@singledispatch
def _drawn(block: Block, width: int) -> Iterable[RenderableType]:
    raise TypeError(f"no such block: {block!r}")


@_drawn.register
def _(block: Title, width: int) -> Iterable[RenderableType]:
    yield plain(" · ".join(block.parts))


@_drawn.register
def _(block: Alert, width: int) -> Iterable[RenderableType]:
    yield plain(block.text, "bold red")


@_drawn.register
def _(block: Headline, width: int) -> Iterable[RenderableType]:
    yield plain(block.text, "bold")
    if block.cause:
        yield Padding(plain(block.cause), (0, 0, 0, _INDENT))


@_drawn.register
def _(block: Note, width: int) -> Iterable[RenderableType]:
    yield plain(block.text)


@_drawn.register
def _(block: Fields, width: int) -> Iterable[RenderableType]:
    indent = _INDENT * block.indented
    longest = max((len(row.label) for row in block.rows), default=0)
    labels = max(_LABEL, longest)
    return chain.from_iterable(
        _field(row, width, f"{'':{indent}}{row.label:<{labels}}  ") for row in block.rows
    )


def _field(row: Field, width: int, label: str) -> Iterable[RenderableType]:
    if row.copied:
        yield Text.assemble((label, "dim"), plain(row.text), no_wrap=True)
        return
    room = width - len(label)
    beside = row.aside if len(row.text) + _GAP + len(row.aside) <= room else ""
    text = plain(f"{row.text:<{room - len(beside)}}{beside}" if beside else row.text)
    yield _labelled(label, text)
    if row.aside and not beside:
        yield _labelled("", plain(row.aside), len(label))


def _labelled(label: str, text: RenderableType, wide: int = 0) -> RenderableType:
    grid = Grid.grid()
    grid.add_column(width=wide or len(label))
    grid.add_column(overflow="fold")
    grid.add_row(Text(label, "dim"), text)
    return grid


@_drawn.register
def _(block: Bars, width: int) -> Iterable[RenderableType]:
    grid = Grid.grid(padding=(0, _GAP, 0, 0))
    grid.add_column(overflow="fold")
    figures = max((len(row.figures) for row in block.rows), default=0)
    for _ in range(figures):
        grid.add_column(justify="right", no_wrap=True)
    grid.add_column(no_wrap=True)
    if block.heads:
        grid.add_row("", *(Text(head, "dim") for head in block.heads), "")
    longest = max((row.share for row in block.rows), default=0.0) or 1.0
    for row in block.rows:
        bar = Text("█" * round(_BAR * row.share / longest), COLORS[row.family])
        cells = [*row.figures, *[""] * (figures - len(row.figures))]
        grid.add_row(plain(row.name), *map(plain, cells), bar if width >= WIDTH else "")
    yield Padding(grid, (0, 0, 0, _INDENT))


@_drawn.register
def _(block: Table, width: int) -> Iterable[RenderableType]:
    if block.title:
        yield plain(block.title, "bold")
    columns = max(map(len, block.rows), default=0)
    grid = Grid.grid(padding=(0, _GAP, 0, 0))
    for at in range(columns):
        grid.add_column(justify="right" if at in block.right else "left", overflow="fold")
    if block.heads:
        grid.add_row(*(Text(head, "dim") for head in block.heads))
    for row in block.rows:
        grid.add_row(*map(plain, row))
    yield _labelled(f"{block.label:<{_LABEL}}  ", grid) if block.label else grid
