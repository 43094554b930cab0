"""What does feedline say of small programs, each written after a public report of a slow or dying training?

    python benchmarks/public_reports/bench.py [--held-out | --second | --third | --fourth | --fifth]
        [--only xray,coder] [--keep FOLDER] [--json FILE]

Each program of this folder has in it, in a few lines of its own, the cause that a public thread found; ``--twin`` runs it
without. Both run under ``feedline run``, one after the other. Prints Markdown: the first finding, whether it is the cause,
whether its line is right, whether the twin's report names the same cause, how many times as fast the report says that the
program would be, and how many times as fast the twin was.
"""

import argparse
import json
import os
import resource
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from fifth import FIFTH
from first import FIRST
from fourth import FOURTH
from held_out import HELD_OUT
from programs import Case
from second import SECOND
from third import THIRD

HERE = Path(__file__).resolve().parent
GITHUB = "https://github.com/"
#: What a busy machine adds to a report: it says nothing of the program.
MACHINE = ("busy_neighbors", "too_short")
MOST_S = 150.0  # of a run: one that hangs is interrupted


@dataclass(frozen=True)
class Row:
    """What was said of a program and its twin.

    Attributes:
        says: The verdict.
        named: the first finding is the cause.
        right: its line is.
    """

    name: str
    report: str
    cause: str
    first: str
    says: str
    place: str
    named: bool
    right: bool
    twin_accused: bool
    twin_first: str
    stated: float | None
    measured: float | None


def recorded(case: Case, folder: Path, *options: str) -> dict[str, Any]:
    """Run a program under feedline, and return its report.

    One that hangs is interrupted as a person would, with Ctrl-C.
    """
    run = folder / f"{case.name}{'-twin' if options else ''}"
    if not (run / "report.json").exists():
        program = [f"{case.name}.py", *options]
        if case.ranks > 1:
            torchrun = ["torchrun", "--standalone", "--nproc-per-node", str(case.ranks)]
            program = ["--", *torchrun, *program]
        command = [sys.executable, "-m", "feedline", "run", "-o", str(run), *program]
        places = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
        with (folder / f"{run.name}.txt").open("w") as said:
            process = subprocess.Popen(
                command,
                cwd=HERE,
                env={**os.environ, "OMP_NUM_THREADS": "1", "PATH": places},
                stdout=said,
                stderr=subprocess.STDOUT,
                start_new_session=True,
                preexec_fn=lambda: _limit(case.files),
            )
            try:
                process.wait(30.0 if case.hangs else MOST_S)
            except subprocess.TimeoutExpired:
                os.killpg(process.pid, signal.SIGINT)
                process.wait(120.0)
    return json.loads((run / "report.json").read_text())  # type: ignore[no-any-return]


def _limit(files: int | None) -> None:
    """Prepare a process: Ctrl-C ends it, also below a shell that ignores it in the background."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    if files is not None:
        resource.setrlimit(resource.RLIMIT_NOFILE, (files, files))


def judged(case: Case, slow: dict[str, Any], twin: dict[str, Any]) -> Row:
    """Compare the two reports with what is known of the program."""
    first, of_twin = _first(slow), _first(twin)
    lines = (HERE / f"{case.name}.py").read_text().splitlines()
    wanted = case.line.split(" | ") if case.line else []
    right = {at for at, text in enumerate(lines, 1) if any(part in text for part in wanted)}
    place = first.get("place", "")
    words = json.dumps(first)
    rate, after = _rate(slow), (first.get("gain") or {}).get("after")
    return Row(
        case.name,
        case.report,
        case.cause,
        first.get("cause", ""),
        slow["verdict"]["limit"],
        place,
        first.get("cause") in case.expected and case.says.lower() in words.lower(),
        _line(place) in right if right else True,
        any(
            one["cause"] == first.get("cause") and one["place"] == place and place
            for one in twin["findings"]
            if one["severity"] != "info"
        ),
        of_twin.get("cause", ""),
        after / first["gain"]["before"] if after and first["gain"]["before"] else None,
        _rate(twin) / rate if rate and _rate(twin) else None,
    )


def _first(report: dict[str, Any]) -> dict[str, Any]:
    asking = [one for one in report["findings"] if one["cause"] not in MACHINE]
    return next((one for one in asking if one["severity"] != "info"), (asking or [{}])[0])


def _rate(report: dict[str, Any]) -> float:
    pace = report["throughput"]
    return float(pace["samples_per_s"] or pace["steps_per_s"] or 0.0)


def _line(place: str) -> int:
    number = place.rpartition(":")[2]
    return int(number) if number.isdigit() else 0


def rows(cases: list[Case], folder: Path) -> Iterator[Row]:
    """Run each program and its twin."""
    for case in cases:
        try:
            yield judged(case, recorded(case, folder), recorded(case, folder, "--twin"))
        except (OSError, ValueError, subprocess.SubprocessError) as error:
            print(f"| {case.name} | failed: {error} |", flush=True)


def main() -> None:
    """Run the programs and print the table."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--held-out", action="store_true", help="only those that nobody tuned for")
    parser.add_argument("--second", action="store_true", help="only the second set of these")
    parser.add_argument("--third", action="store_true", help="only the third")
    parser.add_argument("--fourth", action="store_true", help="only the fourth")
    parser.add_argument("--fifth", action="store_true", help="only the fifth")
    parser.add_argument("--only", type=lambda text: text.split(","), default=[])
    parser.add_argument(
        "--keep", type=Path, help="folder for the runs; those in it are judged again"
    )
    parser.add_argument("--json", type=Path)
    given = parser.parse_args()
    held_out = [*HELD_OUT, *SECOND, *THIRD, *FOURTH, *FIFTH]
    sets = (
        given.held_out and held_out,
        given.second and SECOND,
        given.third and THIRD,
        given.fourth and FOURTH,
        given.fifth and FIFTH,
    )
    cases = next((one for one in sets if one), [*FIRST, *held_out])
    cases = [case for case in cases if not given.only or case.name in given.only]
    found = []
    print("| program | cause | first | named | line | right | twin accused | stated | measured |")
    print("|---|---|---|---|---|---|---|---|---|")
    with tempfile.TemporaryDirectory() as scratch:
        folder = given.keep or Path(scratch)
        folder.mkdir(parents=True, exist_ok=True)
        for row in rows(cases, folder):
            found.append(row)
            print(_text(row), flush=True)
    named, right = (sum(getattr(row, name) for row in found) for name in ("named", "right"))
    accused = sum(row.twin_accused for row in found)
    print(
        f"\n{len(found)} programs: {named} causes first, {right} lines right, {accused} twins accused"
    )
    if given.json:
        given.json.write_text(json.dumps([asdict(row) for row in found], indent=1))


def _text(row: Row) -> str:
    def yes(true: bool) -> str:
        return "yes" if true else "no"

    def times(ratio: float | None) -> str:
        return f"{ratio:.2f}x" if ratio else ""

    where = f"[{row.report.partition('/')[2]}]({GITHUB}{row.report})"
    cells = [f"`{row.name}` ({where})", row.cause, row.first, yes(row.named), row.place]
    cells += [yes(row.right), yes(row.twin_accused), times(row.stated), times(row.measured)]
    return f"| {' | '.join(cells)} |"


if __name__ == "__main__":
    main()
