"""docs/torture.md: what became of each odd program. ``scripts/test-long --matrix`` makes it.

python tests/torture/matrix.py ROWS > docs/torture.md
"""

import ast
import json
import platform
import sys
from dataclasses import dataclass
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent))

from torture.both import Both  # noqa: E402
from torture.case import Case  # noqa: E402
from torture.table import CASES  # noqa: E402

TEXT = """\
# Unusual programs, with and without feedline

Each program below runs twice in the same folder and environment: with `python` and with `feedline run -q`. Exit code, standard
output (byte for byte), standard error (except lines that begin with `feedline:`), the files it leaves, its parameters and its random
states must be the same both times. `scripts/test` runs the quick ones, `scripts/test-long` the others; `scripts/test-long --matrix`
writes this page.

- exit: exit codes, without and with feedline; a negative number is a signal.
- output: whether standard output, standard error and files are equal.
- parameters: whether the digests of all parameters and of the random states of torch, random and numpy are equal; – if the program prints
  none: the program does not train, fails before it can print them, or has no standard output.
- recorded: the steps and samples in the report of the run folder, and the state of a run that is not `finished`. 0 samples: also if their
  number is unknown, because no loader feeds the steps. `+` joins training runs of one run folder, `;` joins run folders. "nothing": the
  program did not start, or no report could be made of the run folder that was asked for, for example because the disk is full.

"""
HEAD = (
    "| program | what is odd | exit | output | parameters | recorded |\n|---|---|---|---|---|---|"
)


@dataclass(frozen=True)
class Row:
    """A line of the table."""

    name: str
    message: str
    plain: int
    feedline: int
    output: bool
    parameters: bool | None
    recorded: str

    def __str__(self) -> str:
        parameters = "–" if self.parameters is None else yes(self.parameters)
        cells = [
            f"`{self.name}`",
            self.message,
            f"{self.plain} / {self.feedline}",
            yes(self.output),
            parameters,
            self.recorded or "nothing",
        ]
        return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"


def row(case: Case, both: Both) -> Row:
    """What a case showed."""
    plain, feedline = both.plain, both.feedline
    output = (plain.out, plain.files) == (feedline.out, feedline.files) and (
        plain.err == feedline.err or not case.stderr
    )
    parameters = plain.parameters == feedline.parameters if plain.parameters else None
    return Row(case.name, says(case), plain.code, feedline.code, output, parameters, both.recorded)


def says(case: Case) -> str:
    """What is odd about a program: the first line of its docstring."""
    source = case.source / "__main__.py" if case.source.is_dir() else case.source
    text = ast.get_docstring(ast.parse(source.read_text())) or ""
    return text.partition("\n")[0]


def yes(equal: bool) -> str:
    return "equal" if equal else "**different**"


def page(rows: list[Row]) -> str:
    """The whole page, theme by theme."""
    import torch

    lines = [
        TEXT,
        f"{len(rows)} programs; Python {platform.python_version()}, torch {torch.__version__}, "
        f"{platform.system()}.\n",
    ]
    for theme in sorted({row.name.partition("/")[0] for row in rows}):
        lines += [
            f"\n## {theme.capitalize()}\n",
            "| program | what is odd | exit | output | parameters | recorded |",
            "|---|---|---|---|---|---|",
        ]
        lines += [str(row) for row in rows if row.name.startswith(f"{theme}/")]
    return "\n".join(lines) + "\n"


def main(folder: Path) -> None:
    known = {case.name: number for number, case in enumerate(CASES)}
    rows = [Row(**json.loads(path.read_text())) for path in folder.glob("*.json")]
    sys.stdout.write(
        page(sorted((row for row in rows if row.name in known), key=lambda row: known[row.name]))
    )


if __name__ == "__main__":
    main(Path(sys.argv[1]))
