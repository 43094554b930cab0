"""What scripts/torch-matrix and scripts/python-matrix share.

That is environments, tests run in them, and the page that tells of it.
"""

import collections
import pathlib
import re
import subprocess
import sys
import xml.etree.ElementTree as ElementTree
from collections.abc import Callable, Iterable

ROOT = pathlib.Path(__file__).resolve().parent.parent
OUTCOMES = {"failure": "failed", "error": "failed", "skipped": "skipped"}
NO_TESTS = 5  # pytest's exit code when the marks leave none

Command = list[str | pathlib.Path]


class Results:
    """Outcomes of tests.

    Attributes:
        rows: row of the table -> outcome -> number of tests.
        failed: the tests that failed, a line each.
        skipped: reason -> number of tests.
    """

    def __init__(self) -> None:
        self.rows: dict[str, collections.Counter[str]] = collections.defaultdict(
            collections.Counter
        )
        self.failed: list[str] = []
        self.skipped: collections.Counter[str] = collections.Counter()

    def add(self, report: pathlib.Path, row: Callable[[str], str]) -> None:
        """Count what a file of ``pytest --junitxml`` tells.

        Args:
            report: the file.
            row: makes a row's name of a test module's dotted name.
        """
        for case in ElementTree.parse(report).iter("testcase"):
            found = next((child for child in case if child.tag in OUTCOMES), None)
            outcome = "passed" if found is None else OUTCOMES[found.tag]
            name = row(case.get("classname", ""))
            self.rows[name][outcome] += 1
            if outcome == "failed":
                self.failed.append(f"{name}: {case.get('name')}")
            elif outcome == "skipped" and found is not None:
                self.skipped[found.get("message", "")] += 1


def output_of(*command: str | pathlib.Path) -> str:
    """Return what a command prints; its failure ends this script."""
    return subprocess.run(
        [str(part) for part in command], check=True, cwd=ROOT, stdout=subprocess.PIPE, text=True
    ).stdout


def environment(
    venv: pathlib.Path, python: str, pins: Callable[[str], Iterable[str]]
) -> tuple[pathlib.Path, Command]:
    """Make a virtual environment if it is missing.

    Args:
        venv: its folder.
        python: makes it.
        pins: what a line of constraints.txt becomes.

    Returns:
        Its Python, and the command that installs into it.
    """
    inside = venv / "bin" / "python"
    if not inside.exists():
        output_of(python, "-m", "venv", venv)
    constraints = venv / "constraints.txt"
    lines = (ROOT / "constraints.txt").read_text().splitlines()
    constraints.write_text("".join(f"{pin}\n" for line in lines for pin in pins(line)))
    install: Command = [
        inside,
        "-m",
        "pip",
        "--quiet",
        "--disable-pip-version-check",
        "install",
        "--no-compile",
    ]
    install += ["--constraint", constraints]
    return inside, install


def run_tests(python: pathlib.Path, report: pathlib.Path, *arguments: str) -> bool:
    """Run pytest; return whether any test ran. Ends this script if pytest cannot run."""
    code = subprocess.run(
        [python, "-m", "pytest", "-q", f"--junitxml={report}", *arguments], cwd=ROOT
    ).returncode
    if code not in (0, 1, NO_TESTS):
        sys.exit(
            f"{pathlib.Path(sys.argv[0]).name}: pytest could not run {' '.join(arguments)} (exit "
            f"code {code}, see above)"
        )
    return code != NO_TESTS


def table(first: str, columns: dict[str, Results]) -> str:
    """Return a Markdown table, a column for each environment."""
    lines = [f"| {first} | {' | '.join(columns)} |", "|---" * (len(columns) + 1) + "|"]
    for row in sorted({row for results in columns.values() for row in results.rows}):
        cells = [
            ", ".join(f"{n} {outcome}" for outcome, n in sorted(results.rows[row].items())) or "-"
            for results in columns.values()
        ]
        lines.append(f"| {row} | {' | '.join(cells)} |")
    return "\n".join(lines)


def write(page: pathlib.Path, *paragraphs: str) -> None:
    page.parent.mkdir(parents=True, exist_ok=True)
    page.write_text("\n\n".join(filter(None, paragraphs)) + "\n")
    print(f"\n{page.read_text()}\n{page}")


def failures(columns: dict[str, Results]) -> str:
    lines = [f"- {name}, {test}" for name, results in columns.items() for test in results.failed]
    return "\n".join(["Failed:", "", *lines]) if lines else ""


def numbers(version: str) -> list[int]:
    return [int(part) for part in re.findall(r"\d+", version)]
