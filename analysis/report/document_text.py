"""Draws a document as text: on a terminal, into a pipe, into a file.

Nothing is said by color alone, and no line is cut.
"""

from collections.abc import Iterable, Sequence
from functools import singledispatch
from itertools import chain, zip_longest

from rich.console import RenderableType
from rich.padding import Padding
from rich.segment import Segment, SegmentLines
from rich.table import Table as Grid
from rich.text import Text

from feedline.analysis.report.console import Console
from feedline.analysis.report.document import (
    Alert,
    Bar,
    Bars,
    Block,
    Code,
    Document,
    Field,
    Fields,
    Headline,
    Items,
    Note,
    Section,
    Table,
    Title,
)
from feedline.profiler.printable import printable

WIDTH = 80
_COLORS = {
    "wait": "red",
    "input": "yellow",
    "move": "green",
    "compute": "blue",
    "rest": "bright_black",
    "user": "cyan",
}
_TONES = {"good": "green", "bad": "bold red", "unsure": "bold yellow"}
_LABEL, _INDENT, _GAP = 6, 2, 2
_BAR = 30  # characters of the longest bar
_NAMES = 20  # characters that other columns need beside those of figures, if they have as many
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
    return isinstance(before, Section) or (type(before), type(block)) in _TOGETHER


def _print(line: RenderableType, console: Console, width: int) -> None:
    if isinstance(line, Text) and line.no_wrap:
        console.print(line, soft_wrap=True)
    else:
        _printed(line, console, width)


def _printed(body: RenderableType, console: Console, width: int) -> None:
    """Print something of rich's without blanks at the ends of lines."""
    options = console.options.update(width=width, highlight=False)
    lines = [_stripped(line) for line in console.render_lines(body, options, pad=False)]
    console.print(SegmentLines(lines, new_lines=True), end="")


def _stripped(line: list[Segment]) -> list[Segment]:
    kept = list(line)
    while kept and not kept[-1].text.strip(" "):
        kept.pop()
    return [*kept[:-1], Segment(kept[-1].text.rstrip(" "), kept[-1].style)] if kept else []


def _plain(text: object, style: str = "") -> Text:
    """Return text as it is: no markup, and nothing that a terminal would act on."""
    return Text(printable(text), style=style, overflow="fold")


@singledispatch
def _drawn(block: Block, width: int) -> Iterable[RenderableType]:
    raise TypeError(f"no such block: {block!r}")


@_drawn.register
def _(block: Title, width: int) -> Iterable[RenderableType]:
    yield _plain(" · ".join(block.parts))


@_drawn.register
def _(block: Alert, width: int) -> Iterable[RenderableType]:
    yield _plain(block.text, "bold red")


@_drawn.register
def _(block: Headline, width: int) -> Iterable[RenderableType]:
    yield _plain(block.text, _TONES.get(block.tone, "bold"))
    if block.cause:
        yield Padding(_plain(block.cause), (0, 0, 0, _INDENT))


@_drawn.register
def _(block: Note, width: int) -> Iterable[RenderableType]:
    yield _plain(block.text)


@_drawn.register
def _(block: Fields, width: int) -> Iterable[RenderableType]:
    indent = _INDENT * block.indented
    longest = max((len(row.label) for row in block.rows), default=0)
    labels = max(_LABEL, longest)
    return chain.from_iterable(
        _field(row, width, f"{'':{indent}}{row.label:<{labels}}  ") for row in block.rows
    )


def _field(row: Field, width: int, label: str) -> Iterable[RenderableType]:
    style = _TONES.get(row.tone, "dim")
    if row.copied:
        yield Text.assemble((label, style), _plain(row.text), no_wrap=True)
        return
    room = width - len(label)
    beside = row.aside if len(row.text) + _GAP + len(row.aside) <= room else ""
    text = _plain(f"{row.text:<{room - len(beside)}}{beside}" if beside else row.text)
    yield _labelled(label, text, style=style)
    if row.aside and not beside:
        yield _labelled("", _plain(row.aside), len(label))


def _labelled(
    label: str, text: RenderableType, wide: int = 0, style: str = "dim"
) -> RenderableType:
    grid = Grid.grid(expand=True)
    grid.add_column(width=wide or len(label))
    grid.add_column(overflow="fold", ratio=1)
    grid.add_row(Text(label, style), text)
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
    whole = _room_for_bars(block, width)
    for row in block.rows:
        bar = Text("█" * round(whole * row.share / longest), _COLORS[row.family])
        cells = [*row.figures, *[""] * (figures - len(row.figures))]
        grid.add_row(_plain(_name(row)), *map(_plain, cells), bar)
    yield Padding(grid, (0, 0, 0, _INDENT))


def _name(row: Bar) -> str:
    return f"{' ' * _INDENT}{row.name}" if row.inside else row.name


def _room_for_bars(block: Bars, width: int) -> int:
    """Return how long the longest bar is: what names and figures leave, 0 on a narrow terminal."""
    if width < WIDTH:
        return 0
    wide = _widths([("", *block.heads), *((_name(row), *row.figures) for row in block.rows)])
    return max(0, min(_BAR, width - _INDENT - sum(wide) - _GAP * len(wide)))


@_drawn.register
def _(block: Table, width: int) -> Iterable[RenderableType]:
    if block.title:
        yield _plain(block.title, "bold")
    wide, gap = _layout(block, width)
    if block.heads and not gap:
        yield from (_listed(_in_words(row, block.heads)) for row in block.rows)
        return
    grid = Grid.grid(padding=(0, gap or _GAP, 0, 0))
    for at, chars in enumerate(wide):
        if at in block.right and gap:
            grid.add_column(justify="right", width=chars)
        else:
            whole = not block.heads and chars <= width // 2 and _of_words(block, at)
            grid.add_column(
                justify="right" if at in block.right else "left", overflow="fold", no_wrap=whole
            )
    if block.heads:
        grid.add_row(*(Text(head, "dim") for head in block.heads))
    for number, row in enumerate(block.rows):
        style = "dim" if len(row) == 1 < len(wide) else "bold" if number in block.marked else ""
        grid.add_row(*map(_plain, row), style=style)
    yield _labelled(f"{block.label:<{_LABEL}}  ", grid) if block.label else grid


def _of_words(table: Table, column: int) -> bool:
    """Tell whether each cell of a column is one word, such as a file and a line, or empty."""
    return all(" " not in row[column] for row in table.rows if column < len(row))


def _layout(table: Table, width: int) -> tuple[list[int], int]:
    """Return the characters of each column and the blanks between them; 0: there is no room.

    Figures are never broken into lines; if they do not fit otherwise, their heads are.
    """
    rows = [row for row in table.rows if len(row) > 1 or not table.heads]
    whole = _widths([table.heads, *rows])
    words = [max(map(len, head.split()), default=0) for head in table.heads]
    narrow = [
        max(length, words[at]) if at < len(words) else length
        for at, length in enumerate(_widths([("",) * len(table.heads), *rows]))
    ]
    for wide, gap in ((whole, _GAP), (whole, 1), (narrow, _GAP), (narrow, 1)):
        figures = sum(chars for at, chars in enumerate(wide) if at in table.right)
        names = min(_NAMES, sum(wide) - figures)
        if figures + names + gap * (len(wide) - 1) <= width:
            return wide, gap
    return whole, 0


def _widths(rows: Sequence[Sequence[str]]) -> list[int]:
    """Return the characters of each column."""
    return [max(map(len, cells)) for cells in zip_longest(*rows, fillvalue="")]


def _in_words(row: Sequence[str], heads: Sequence[str]) -> str:
    """Return a row of a table that is too wide for the terminal: ``decode: wall ms 9.1; CPU 8.2``."""
    cells = [
        f"{head} {cell}".strip() for head, cell in zip(heads[1:], row[1:], strict=False) if cell
    ]
    return f"{row[0].strip()}{': ' if cells else ''}{'; '.join(cells)}"


def _listed(text: str) -> RenderableType:
    return _labelled("- ", _plain(text), style="")


@_drawn.register
def _(block: Items, width: int) -> Iterable[RenderableType]:
    if block.title:
        yield _plain(block.title, "bold")
    for row in block.rows:
        yield _listed(row)


@_drawn.register
def _(block: Code, width: int) -> Iterable[RenderableType]:
    if block.title:
        yield _plain(block.title, "dim")
    for line in block.lines:
        yield Text.assemble("    " if line.strip() else "", _plain(line.rstrip()), no_wrap=True)


@_drawn.register
def _(block: Section, width: int) -> Iterable[RenderableType]:
    yield _plain(block.title, "bold underline")
