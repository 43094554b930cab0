"""How long the default report of each run is: lines, words of prose, the longest sentence.

    python benchmarks/default_reports.py RUN ... [--json FILE] [--markdown FILE]

The goals are 25 lines of 80 columns, 110 words, 22 words. A run that holds several trainings is an
overview, and is not measured.
"""

import argparse
import io
import json
import re
import sys
from dataclasses import asdict, dataclass
from pathlib import Path

import feedline
from feedline.analysis.report import document_text
from feedline.analysis.report.console import Console
from feedline.analysis.report.document import Document
from feedline.analysis.report.terminal import first_screen, places
from feedline.analysis.text.sentences import MAX_WORDS

MAX_LINES, MAX_PROSE = 25, 110
FILES = [
    ("Report", "report.html"),
    ("More", "feedline report --full"),
    ("Test", "feedline verify"),
]


@dataclass(frozen=True)
class Length:
    """Of one default report."""

    run: str
    lines: int
    columns: int
    words: int
    longest: int
    sentence: str

    @property
    def fits(self) -> bool:
        """Whether it keeps to the goals."""
        return self.lines <= MAX_LINES and self.words <= MAX_PROSE and self.longest <= MAX_WORDS


def length(run: Path) -> Length:
    """Return the length of a run's default report, with the lines that name files."""
    screen = first_screen(feedline.load(run).report)
    file = io.StringIO()
    document = Document((*screen.blocks, places(FILES)))
    document_text.show(document, Console(file=file, width=80, color_system=None))
    lines = file.getvalue().splitlines()
    sentences = [
        sentence for said in screen.prose() for sentence in re.split(r"(?<=[.!?]) (?=[A-Z])", said)
    ]
    longest = max(sentences, key=lambda sentence: len(sentence.split()))
    return Length(
        run.name,
        len(lines),
        max(map(len, lines)),
        sum(len(said.split()) for said in screen.prose()),
        len(longest.split()),
        longest,
    )


def table(lengths: list[Length]) -> str:
    """Return a row per run, the longest first."""
    rows = sorted(lengths, key=lambda one: (one.fits, -one.lines, one.run))
    head = "| run | lines | words | longest sentence |\n|---|---|---|---|\n"
    return head + "".join(
        f"| {one.run} | {one.lines} | {one.words} | {one.longest} |\n" for one in rows
    )


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("runs", nargs="+", type=Path)
    parser.add_argument("--json", type=Path)
    parser.add_argument("--markdown", type=Path)
    args = parser.parse_args()
    lengths = []
    for run in args.runs:
        try:
            lengths.append(length(run))
        except Exception as error:  # the others are measured all the same
            print(f"{run}: {error}", file=sys.stderr)
    if args.json:
        args.json.write_text(json.dumps([asdict(one) for one in lengths], indent=1) + "\n")
    if args.markdown:
        args.markdown.write_text(table(lengths))
    print(table(lengths), end="")
    misses = [one for one in lengths if not one.fits]
    for one in misses:
        print(f"{one.run}: {one.lines} lines, {one.words} words, {one.longest}: {one.sentence}")
    print(f"{len(lengths) - len(misses)} of {len(lengths)} fit")
    return bool(misses)


if __name__ == "__main__":
    sys.exit(main())
