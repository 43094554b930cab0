"""Draws a document as Markdown, to be pasted into a pull request: no HTML, no bars, no color."""

import re
from collections.abc import Iterable, Sequence
from functools import singledispatch

from feedline.analysis.report.document import (
    Alert,
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

_SPECIAL = re.compile(r"([\\`*\[\]<|#~]|(?<!\w)_|_(?!\w))")
_ENTITY = re.compile(r"&(?=#?\w+;)")
_AT_START = re.compile(r"^(?:(\d+)(?=[.)]\s)|(?=[-+]\s|>))")  # of a list or a quotation


def render(document: Document) -> str:
    """Return a document as Markdown, which ends with a newline."""
    parts = ["\n".join(_drawn(block)) for block in document.blocks]
    return "\n\n".join(part for part in parts if part) + "\n"


def _escaped(text: object) -> str:
    """Return text in which nothing acts as Markdown or HTML, also in the cell of a table."""
    plain = _ENTITY.sub("&amp;", " ".join(printable(text).split()))
    plain = _SPECIAL.sub(r"\\\1", plain).replace("\\<", "&lt;").replace("@", "&#64;")
    return _AT_START.sub(lambda begun: f"{begun[1] or ''}\\", plain)


def _code(text: object) -> str:
    """Return text to be copied, in as many backticks as it needs."""
    plain = " ".join(printable(text).split())
    longest = max((len(run) for run in re.findall("`+", plain)), default=0)
    fence = "`" * (longest + 1)
    space = " " if plain.startswith("`") or plain.endswith("`") else ""
    return f"{fence}{space}{plain}{space}{fence}"


@singledispatch
def _drawn(block: Block) -> Iterable[str]:
    raise TypeError(f"no such block: {block!r}")


@_drawn.register
def _(block: Title) -> Iterable[str]:
    yield f"### {' · '.join(map(_escaped, block.parts))}"


@_drawn.register
def _(block: Alert) -> Iterable[str]:
    yield f"**{_escaped(block.text)}**"


@_drawn.register
def _(block: Headline) -> Iterable[str]:
    yield f"**{_escaped(block.text)}**"
    if block.cause:
        yield _escaped(block.cause)


@_drawn.register
def _(block: Note) -> Iterable[str]:
    yield _escaped(block.text)


@_drawn.register
def _(block: Fields) -> Iterable[str]:
    return map(_field, block.rows)


def _field(row: Field) -> str:
    label = f"**{_escaped(row.label)}** " if row.label else ""
    text = _code(row.text) if row.copied else _escaped(row.text)
    return f"- {label}{text}{f' ({_code(row.aside)})' if row.aside else ''}"


@_drawn.register
def _(block: Bars) -> Iterable[str]:
    figures = max((len(row.figures) for row in block.rows), default=0)
    rows = [
        (f"- {row.name}" if row.inside else row.name, *row.figures)
        + ("",) * (figures - len(row.figures))
        for row in block.rows
    ]
    return _table(("", *(block.heads or [""] * figures)), rows, frozenset(range(1, figures + 1)))


@_drawn.register
def _(block: Table) -> Iterable[str]:
    if block.title or block.label:
        yield f"**{_escaped(block.title or block.label)}**"
        yield ""
    columns = max(map(len, block.rows), default=len(block.heads))
    rows = [(*row, *[""] * (columns - len(row))) for row in block.rows]
    yield from _table(block.heads or [""] * columns, rows, block.right)


@_drawn.register
def _(block: Items) -> Iterable[str]:
    if block.title:
        yield f"**{_escaped(block.title)}**"
        yield ""
    for row in block.rows:
        yield f"- {_escaped(row)}"


@_drawn.register
def _(block: Code) -> Iterable[str]:
    if block.title:
        yield _escaped(block.title)
        yield ""
    longest = max((len(run) for line in block.lines for run in re.findall("`+", line)), default=0)
    fence = "`" * max(3, longest + 1)
    yield from (fence, *map(printable, block.lines), fence)


@_drawn.register
def _(block: Section) -> Iterable[str]:
    yield f"#### {_escaped(block.title)}"


def _table(
    heads: Sequence[str], rows: Sequence[Sequence[str]], right: frozenset[int]
) -> Iterable[str]:
    yield _row(heads)
    yield f"|{'|'.join('--:' if at in right else '---' for at in range(len(heads)))}|"
    yield from map(_row, rows)


def _row(cells: Sequence[str]) -> str:
    return f"| {' | '.join(map(_escaped, cells))} |"
