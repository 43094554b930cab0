"""Programs by others five times alone and five times beside busy neighbours: is the first finding the same, or does it name the neighbours.

    python benchmarks/programs_of_others/neighbours.py --repositories FOLDER [--only NAME ...] [--times 5]

The neighbours are as many loops as there are CPUs. Prints Markdown.
"""

import argparse
import contextlib
import os
import shutil
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

from programs_of_others.bench import Bench, said_of  # noqa: E402
from programs_of_others.manifest import PROGRAMS  # noqa: E402
from programs_of_others.program import Program  # noqa: E402

#: One without workers, one with them, one without a loader.
CHOSEN = ("mnist", "minGPT chargpt", "nanoGPT")


@contextlib.contextmanager
def neighbours(number: int) -> Iterator[None]:
    """Loops that take as much CPU as they get."""
    loops = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(number)]
    try:
        yield
    finally:
        for loop in loops:
            loop.kill()
            loop.wait()


def first(bench: Bench, program: Program, home: Path, loops: int) -> str:
    """Cause of the first finding of one run, or what went wrong."""
    shutil.rmtree(home / "run", ignore_errors=True)
    with neighbours(loops):
        outcome = bench.outcome(program, home, {}, None, "-q", "-o", str(home / "run"))
    if outcome.code:
        return f"exit code {outcome.code}"
    said = max(said_of(home / "run"), key=lambda one: one.steps)
    return (said.causes or ("none",))[0]


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--repositories", type=Path, metavar="FOLDER", help="checkouts, as OWNER/NAME"
    )
    parser.add_argument(
        "--only",
        nargs="+",
        default=CHOSEN,
        metavar="NAME",
        help="their names (default: %(default)s)",
    )
    parser.add_argument(
        "--times", type=int, default=5, help="runs of each kind (default: %(default)s)"
    )
    args = parser.parse_args()
    print("| program | alone | beside as many busy loops as CPUs |\n|---|---|---|")
    with tempfile.TemporaryDirectory() as folder:
        bench = Bench(Path(folder), args.repositories)
        for program in (one for one in PROGRAMS if one.name in args.only):
            if missing := program.missing(args.repositories):
                print(f"| {program.name} | {missing} | |")
                continue
            cells = [
                tell(bench, program, Path(folder), loops, args.times)
                for loops in (0, len(os.sched_getaffinity(0)))
            ]
            print(f"| {program.name} | {' | '.join(cells)} |", flush=True)


def tell(bench: Bench, program: Program, home: Path, loops: int, times: int) -> str:
    """First findings, the most frequent first."""
    found = Counter(first(bench, program, home, loops) for _ in range(times))
    return ", ".join(f"{number} x `{rule_id}`" for rule_id, number in found.most_common())


if __name__ == "__main__":
    main()
