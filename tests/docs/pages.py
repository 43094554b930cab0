"""The pages of the documentation as they are written: headings, links, blocks of code, command
lines.
"""

import re
import shlex
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache, cached_property
from pathlib import Path

from markdown_it import MarkdownIt
from markdown_it.token import Token

ROOT = Path(__file__).resolve().parents[2]
PATHS = [
    ROOT / "README.md",
    *sorted((ROOT / "docs").rglob("*.md")),
    ROOT / "benchmarks" / "README.md",
]
SHELL = (
    "",
    "console",
    "sh",
    "bash",
)  # kinds of blocks with command lines in them; "" is an indented one
END_OF_COMMAND = {">", ">>", "|", "&&", ";", "2>&1", "&", "#"}


@dataclass(frozen=True)
class Block:
    """A block of code: its kind ("python", "console", "" where it is indented), text, and first
    line in the page.
    """

    kind: str
    text: str
    line: int


@dataclass(frozen=True)
class Page:
    path: Path
    text: str

    def __str__(self) -> str:
        return (
            str(self.path.relative_to(ROOT)) if self.path.is_relative_to(ROOT) else self.path.name
        )

    @cached_property
    def tokens(self) -> list[Token]:
        return MarkdownIt("commonmark").enable("table").parse(self.text)

    @cached_property
    def anchors(self) -> set[str]:
        """Those that GitHub and MyST give to the headings."""
        found: set[str] = set()
        for opening, inline in zip(self.tokens, self.tokens[1:]):
            if opening.type == "heading_open":
                anchor, number = slug(inline), 1
                while anchor in found:
                    anchor, number = f"{slug(inline)}-{number}", number + 1
                found.add(anchor)
        return found

    def links(self) -> Iterator[str]:
        """Targets of links and images, in pages and toctrees."""
        for token in self.inline():
            if token.type in ("link_open", "image"):
                yield str(token.attrGet("href") or token.attrGet("src"))
        for entry in self.in_toctrees():
            if "*" not in entry:
                yield f"{entry}.md"

    def in_toctrees(self) -> Iterator[str]:
        for block in self.blocks():
            if block.kind == "{toctree}":
                yield from (
                    line for line in block.text.splitlines() if line and not line.startswith(":")
                )

    def inline(self) -> Iterator[Token]:
        for token in self.tokens:
            yield from token.children or ()

    def spans(self) -> Iterator[str]:
        """Code in the middle of a sentence."""
        return (token.content for token in self.inline() if token.type == "code_inline")

    def blocks(self) -> Iterator[Block]:
        for token in self.tokens:
            if token.type in ("fence", "code_block"):
                yield Block(
                    token.info.split(" ")[0] if token.type == "fence" else "",
                    token.content,
                    (token.map or [0])[0] + 1,
                )

    def shell_lines(self) -> Iterator[str]:
        """Lines of shell blocks, without a remark behind them."""
        for block in self.blocks():
            if block.kind in SHELL:
                for line in block.text.replace("\\\n", " ").splitlines():
                    yield re.split(r"\s{2,}", line.strip().removeprefix("$ "))[0]

    def command_lines(self) -> Iterator[list[str]]:
        """Words of each line of a shell block, up to a pipe or a remark behind it."""
        return map(words, self.shell_lines())


@cache
def page(path: Path) -> Page:
    return Page(path, path.read_text())


def slug(heading: Token) -> str:
    text = "".join(
        token.content for token in heading.children or () if token.type in ("text", "code_inline")
    )
    return re.sub(r"[^\w\- ]", "", text.strip().lower()).replace(" ", "-")


def words(line: str) -> list[str]:
    """A line as a shell reads it; empty where it is none (output of a command, a diagram)."""
    try:
        found = shlex.split(line)
    except ValueError:
        return []
    end = next(
        (
            number
            for number, word in enumerate(found)
            if word in END_OF_COMMAND or word.startswith("#")
        ),
        len(found),
    )
    return found[:end]
