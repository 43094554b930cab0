"""Is a slow line named, and its gain told, and is the program without it left in peace?

    python benchmarks/slow_calls/bench.py [--only zip_opened,figure] [--program PATH:LINES ...] [--json FILE]

Each program of this folder runs under ``feedline run`` for some seconds, with its slow call and without (``--twin``). The line
to name is marked with ``SLOW``; a program elsewhere is given with its lines, such as ``c01.py:21,22``. Prints Markdown: the
first finding about code, its place and kind, whether it comes first of all findings (beside what other programs cost), whether
the twin is accused of the same line, how many times as fast the report says that the program would be without the call, at
most, and how many times as fast the twin was.
"""

import argparse
import json
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
CODE = ("user_code", "own_code", "periodic_stall")
#: What a busy machine adds to a report: it says nothing of the program.
MACHINE = ("busy_neighbors", "too_short")
NO_PROGRAMS = ("bench", "training")


@dataclass(frozen=True)
class Pair:
    """A program with a slow call.

    Attributes:
        lines: any of which is the right one.
    """

    program: Path
    lines: frozenset[int]


@dataclass(frozen=True)
class Row:
    """What was told of a pair."""

    name: str
    place: str
    right: bool
    first: bool
    kind: str
    twin_accused: bool
    stated: float | None
    measured: float | None


def pairs(only: list[str], more: list[str]) -> Iterator[Pair]:
    """The programs of this folder, and those named on the command line."""
    for program in sorted(HERE.glob("*.py")):
        if program.stem in NO_PROGRAMS or only and program.stem not in only:
            continue
        lines = enumerate(program.read_text().splitlines(), 1)
        yield Pair(program, frozenset(number for number, line in lines if "# SLOW" in line))
    for given in more:
        place, _, numbers = given.rpartition(":")
        yield Pair(Path(place), frozenset(map(int, numbers.split(","))))


def recorded(pair: Pair, folder: Path, *options: str) -> dict[str, Any]:
    """Run a program under feedline, and return its report."""
    run = folder / f"{pair.program.stem}{'-twin' if options else ''}"
    command = [sys.executable, "-m", "feedline", "run", "-q", "-o", str(run), pair.program.name]
    subprocess.run(
        [*command, *options],
        cwd=pair.program.parent,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
        stdout=subprocess.DEVNULL,
        check=True,
    )
    return json.loads((run / "report.json").read_text())  # type: ignore[no-any-return]


def judged(pair: Pair, slow: dict[str, Any], twin: dict[str, Any]) -> Row:
    """Compare the two reports with what is known of the program."""
    asking = [one for one in slow["findings"] if one["severity"] != "info"]
    about = next((one for one in asking if one["cause"] in CODE), None)
    place = about["place"] if about else ""
    causes = [one["cause"] for one in asking if one["cause"] not in MACHINE]
    rate = slow["throughput"]["samples_per_s"]
    most = (about or {}).get("at_most_per_s")
    kind = next(
        (one["of"] for one in (about or {}).get("evidence", []) if one["id"] == "known_call_share"),
        "",
    )
    return Row(
        pair.program.stem,
        place,
        _line(place) in pair.lines,
        bool(causes) and about is not None and causes[0] == about["cause"],
        kind,
        any(_line(one["place"]) in pair.lines for one in twin["findings"] if one["cause"] in CODE),
        most / rate if most else None,
        twin["throughput"]["samples_per_s"] / rate if rate else None,
    )


def _line(place: str) -> int:
    match = re.search(r":(\d+)$", place)
    return int(match[1]) if match else 0


def main() -> None:
    """Run the pairs and print the table."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--only", type=lambda text: text.split(","), default=[])
    parser.add_argument("--program", action="append", default=[], metavar="PATH:LINES")
    parser.add_argument("--json", type=Path)
    parser.add_argument("--keep", type=Path, help="folder for the runs")
    given = parser.parse_args()
    rows = []
    print("| program | named | right | first | known as | twin accused | at most | measured |")
    print("|---|---|---|---|---|---|---|---|")
    with tempfile.TemporaryDirectory() as scratch:
        folder = given.keep or Path(scratch)
        for pair in pairs(given.only, given.program):
            try:
                row = judged(pair, recorded(pair, folder), recorded(pair, folder, "--twin"))
            except (subprocess.CalledProcessError, OSError) as error:
                print(f"| {pair.program.stem} | failed: {error} |", flush=True)
                continue
            rows.append(row)
            print(_text(row), flush=True)
    right = sum(row.right for row in rows)
    first, accused = sum(row.first for row in rows), sum(row.twin_accused for row in rows)
    print(f"\n{len(rows)} pairs: {right} lines right, {first} first, {accused} twins accused")
    if given.json:
        given.json.write_text(json.dumps([asdict(row) for row in rows], indent=1))


def _text(row: Row) -> str:
    def yes(true: bool) -> str:
        return "yes" if true else "no"

    def times(ratio: float | None) -> str:
        return f"{ratio:.2f}x" if ratio else ""

    cells = [row.name, row.place, yes(row.right), yes(row.first), row.kind]
    cells += [yes(row.twin_accused), times(row.stated), times(row.measured)]
    return f"| {' | '.join(cells)} |"


if __name__ == "__main__":
    main()
