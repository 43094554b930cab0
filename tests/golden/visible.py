"""What a page says: a line for each block of text, row of a table or label of a figure, as one
would read it aloud.
"""

import re
from collections.abc import Iterable, Iterator
from html.parser import HTMLParser
from itertools import groupby

UNSEEN = ("script", "style")
INLINE = frozenset(
    (
        "a",
        "abbr",
        "b",
        "code",
        "em",
        "i",
        "small",
        "span",
        "strong",
        "sub",
        "sup",
        "tspan",
        "u",
        "wbr",
    )
)
CELLS = frozenset(("td", "th"))
SAID = (
    "aria-label",
    "data-tip",
    "title",
)  # shown where the pointer is, and read to those who cannot see a figure
# lines that differ in their numbers alone: marks of a figure, whose numbers are pinned as numbers
MANY = 4
NUMBERS = re.compile(r"<?\d[\d,.]*( [kMGT]?B| [mµn]?s)?\b")


class _Page(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.lines: list[list[str]] = [[]]
        self._unseen = 0

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        self._unseen += tag in UNSEEN
        self._boundary(tag)
        self.lines += [
            line
            for name, value in attributes
            if name in SAID and value
            for line in ([f"({value})"], [])
        ]

    def handle_endtag(self, tag: str) -> None:
        self._unseen -= tag in UNSEEN
        self._boundary(tag)

    def handle_data(self, text: str) -> None:
        if not self._unseen:
            self.lines[-1].append(text)

    def _boundary(self, tag: str) -> None:
        if tag in CELLS:
            self.lines[-1].append(" | ")
        elif tag not in INLINE:
            self.lines.append([])


def visible_text(page: str) -> str:
    """The text of an HTML page, without empty lines; of many lines that differ in their numbers
    alone, the first ones.
    """
    parser = _Page()
    parser.feed(page)
    parser.close()
    lines = (
        re.sub(r"(\| )+", "| ", " ".join("".join(parts).split())).strip("| ")
        for parts in parser.lines
    )
    return "".join(f"{line}\n" for line in _thinned(line for line in lines if line))


def _thinned(lines: Iterable[str]) -> Iterator[str]:
    for _, group in groupby(lines, lambda line: NUMBERS.sub("0", line)):
        alike = list(group)
        yield from alike[:MANY]
        if len(alike) > MANY:
            yield f"[{len(alike) - MANY} more like these]"
