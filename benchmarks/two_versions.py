"""CPU time of a report and of a recording with two versions of feedline, in alternating pairs.

    git worktree add /tmp/before COMMIT && python /tmp/before/scripts/ns
    python benchmarks/two_versions.py /tmp/before tests/golden/runs/loader --pairs 7

Both versions run from their sources with the same Python. Prints the medians of each, and the
median of the differences with its 95 % bootstrap interval.
"""

import argparse
import shutil
import statistics
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from twins import Estimate, in_turns, run

HERE = Path(__file__).resolve().parent
TRAINING = HERE / "programs" / "small_training.py"
MAIN = "import sys; from feedline.__main__ import main; sys.exit(main(sys.argv[1:]))"
LIMIT_S = 300.0


def cpu_s(version: Path, command: Sequence[str], folder: Path) -> float:
    """CPU seconds of a command of feedline and of every process that it waits for."""
    ended = run(
        [sys.executable, "-c", MAIN, *command],
        folder,
        {"PYTHONPATH": str(version / ".ns")},
        limit_s=LIMIT_S,
    )
    if ended.exit_code:
        raise SystemExit(f"{version}: feedline {' '.join(command)}: exit code {ended.exit_code}")
    return ended.cpu_s


def reporting(version: Path, stored: Path) -> float:
    """CPU seconds of the report of a copy of a stored run."""
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        shutil.copytree(stored, folder / "run")
        return cpu_s(version, ["report", "-q", "run"], folder)


def recording(version: Path) -> float:
    """CPU seconds of a small training that is recorded, without its report."""
    with tempfile.TemporaryDirectory() as scratch:
        return cpu_s(version, ["run", "-q", "-o", "run", str(TRAINING), "finish"], Path(scratch))


def pairs(
    measure: Callable[[Path], float], versions: Mapping[str, Path], number: int
) -> list[dict[str, float]]:
    """Both versions in turns, after one of each that does not count: byte code, and pages."""
    for version in versions.values():
        measure(version)
    return list(in_turns(list(versions), lambda which: measure(versions[which]), number))


def compared(name: str, rounds: Sequence[Mapping[str, float]]) -> str:
    """A row of the table: medians before and now, and the difference."""
    before, now = (statistics.median(pair[which] for pair in rounds) for which in ("before", "now"))
    difference = Estimate.of([pair["now"] - pair["before"] for pair in rounds])
    return f"| {name} | {before:.2f} | {now:.2f} | {difference.text()} |"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("before", type=Path, help="sources of the version to compare with")
    parser.add_argument("stored", type=Path, help="a run folder that both can read")
    parser.add_argument("--pairs", type=int, default=7)
    args = parser.parse_args()
    versions = {"before": args.before.resolve(), "now": HERE.parent}
    stored = args.stored.resolve()
    measured: dict[str, Callable[[Path], float]] = {
        f"`feedline report -q` of {stored.name}": lambda version: reporting(version, stored),
        f"`feedline run -q {TRAINING.name}`": recording,
    }
    print("| command | before: CPU s | now: CPU s | now less before, pairs |")
    print("|---|---|---|---|")
    for name, measure in measured.items():
        print(compared(name, pairs(measure, versions, args.pairs)), flush=True)


if __name__ == "__main__":
    main()
