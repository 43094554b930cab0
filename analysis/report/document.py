"""A document: what any command says, as data, which one renderer per output draws.

Text, Markdown and JSON are made from the same blocks; no command lays out anything itself.
"""

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Title:
    """The subject, then its main figures, in one line.

    Attributes:
        parts: Name first, e.g. ("demo", "36 steps of 395 ms", "81 samples/s").
    """

    parts: tuple[str, ...]


@dataclass(frozen=True)
class Alert:
    """What must be known before anything else: a crash, a full disk."""

    text: str


@dataclass(frozen=True)
class Headline:
    """The conclusion in one sentence, and its cause in another.

    Attributes:
        tone: bad or unsure; empty: neither.
    """

    text: str
    cause: str = ""
    tone: str = ""


@dataclass(frozen=True)
class Field:
    """A labelled line.

    Attributes:
        label: One word, e.g. Fix.
        text: What it says.
        aside: At the right, e.g. the file and line; empty: nothing.
        copied: Whether it is a path or a command, which is never wrapped.
        tone: What its label says: good, bad or unsure; empty: none of these.
    """

    label: str
    text: str
    aside: str = ""
    copied: bool = False
    tone: str = ""


@dataclass(frozen=True)
class Fields:
    """Labelled lines.

    Attributes:
        indented: Whether they belong to the headline above them.
    """

    rows: tuple[Field, ...]
    indented: bool = False


@dataclass(frozen=True)
class Bar:
    """A part of a whole.

    Attributes:
        name: Of the part.
        figures: As text, with units.
        share: Of the whole (0 to 1).
        family: What it is of, for its color: wait, input, move, compute, rest or user.
        inside: Whether it is a part of the row above it that is not.
    """

    name: str
    figures: tuple[str, ...]
    share: float
    family: str = "rest"
    inside: bool = False


@dataclass(frozen=True)
class Bars:
    """Parts of a whole, largest first.

    Attributes:
        heads: Of the figures; empty: they need none.
    """

    rows: tuple[Bar, ...]
    heads: tuple[str, ...] = ()


@dataclass(frozen=True)
class Table:
    """Rows of cells.

    Attributes:
        heads: One per column; empty: they need none.
        rows: One text per column; a row of one text is a heading of those below it.
        title: Above it; empty: nothing.
        right: Columns of figures, which are aligned at the right.
        label: Beside its first row; empty: nothing.
        marked: Rows that stand out.
    """

    rows: tuple[tuple[str, ...], ...]
    heads: tuple[str, ...] = ()
    title: str = ""
    right: frozenset[int] = frozenset()
    label: str = ""
    marked: frozenset[int] = frozenset()


@dataclass(frozen=True)
class Items:
    """A list of sentences.

    Attributes:
        title: Above it; empty: nothing.
    """

    rows: tuple[str, ...]
    title: str = ""


@dataclass(frozen=True)
class Code:
    """Lines of a program to be copied, which are never wrapped.

    Attributes:
        title: Above them; empty: nothing.
    """

    lines: tuple[str, ...]
    title: str = ""


@dataclass(frozen=True)
class Section:
    """A heading of the blocks that follow."""

    title: str


@dataclass(frozen=True)
class Note:
    """A sentence that is read last."""

    text: str


Block = Title | Alert | Headline | Fields | Bars | Table | Items | Code | Section | Note


@dataclass(frozen=True)
class Document:
    """Blocks in the order in which they are read."""

    blocks: tuple[Block, ...]

    def of(self, kind: type) -> list[Block]:
        """Return the blocks of one kind."""
        return [block for block in self.blocks if isinstance(block, kind)]

    def prose(self) -> Sequence[str]:
        """Return its sentences: what is neither a figure, a name nor a command."""
        said: list[str] = []
        for block in self.blocks:
            if isinstance(block, (Alert, Note)):
                said.append(block.text)
            elif isinstance(block, Headline):
                said += filter(None, (block.text, block.cause))
            elif isinstance(block, Fields):
                said += [row.text for row in block.rows if not row.copied]
            elif isinstance(block, Table):
                said += [" ".join(row) for row in block.rows]
            elif isinstance(block, Items):
                said += block.rows
        return said
