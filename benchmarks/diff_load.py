"""What `feedline diff` says of runs whose truth is known, when the load beside them changes.

    python benchmarks/diff_load.py -o results/diff-load

Records variants of a small training (programs/loaded_training.py) alone and beside processes that only count, and compares five pairs of
variants and five variants with themselves, both with more and with less load beside B. A comparison is right if it names what was changed,
and says of a variant and itself that nothing changed. Prints Markdown; --json has all comparisons.
"""

import argparse
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from diff_truth import FEEDLINE, compared
from twins import table, write_json

TRAINING = Path(__file__).parent / "programs" / "loaded_training.py"
#: name -> samples, workers, channels of the model, steps
VARIANTS = {
    "loops": ("loops", 2, 8, 600),
    "arrays": ("arrays", 2, 8, 1500),
    "sleeps": ("sleeps", 2, 8, 300),
    "4 workers": ("sleeps", 4, 8, 600),
    "model": ("arrays", 1, 32, 300),
    "larger model": ("arrays", 1, 48, 200),
}
MAKING, MODEL = (
    ("sample/dataset", "sample/total"),
    ("cpu/forward", "cpu/backward", "stage/forward", "stage/backward"),
)
#: A, B, what is to be named, and whether B is the faster one
CHANGES = (
    ("loops", "arrays", MAKING, True),
    ("arrays", "loops", MAKING, False),
    ("sleeps", "arrays", ("blocked/dataset", "blocked/total"), True),
    ("sleeps", "4 workers", ("stage/wait",), True),
    ("model", "larger model", MODEL, False),
)
UNCHANGED = ("loops", "arrays", "sleeps", "model", "larger model")
COUNT = "while True: pass"


@contextmanager
def beside(count: int) -> Iterator[None]:
    """Processes that only count."""
    started = [subprocess.Popen([sys.executable, "-c", COUNT]) for _ in range(count)]
    try:
        yield
    finally:
        for process in started:
            process.kill()
            process.wait()


def record(run: Path, variant: str, load: int) -> None:
    """One training; kept if it was recorded before."""
    if run.exists():
        return
    samples, workers, width, steps = map(str, VARIANTS[variant])
    words = ["--samples", samples, "--workers", workers, "--width", width, "--steps", steps]
    begun = run.with_name(f"{run.name}.begun")
    with beside(load):
        command = [*FEEDLINE, "run", "-q", "-f", "-o", str(begun), str(TRAINING), *words]
        subprocess.run(command, check=True, env={**os.environ, "OMP_NUM_THREADS": "1"})
    begun.rename(run)


def right(diff: dict[str, Any], named: tuple[str, ...], is_faster: bool) -> bool:
    """Whether it names what was changed, in the right direction, and does not put the whole change
    down to the machine.

    Args:
        named: ids of quantities, one of which has to be the cause; empty: nothing was changed.
    """
    outcomes = {
        one["id"]: one["outcome"]
        for one in diff["quantities"]
        if one["group"] not in ("gauge", "work", "wait")
    }
    if not named:
        return "changed" not in outcomes.values() and not diff["cause"]
    cause = next((one for one in diff["quantities"] if one["id"] == diff["cause"]), None)
    if cause is None or cause["id"] not in named:
        return False
    step = next(one for one in diff["quantities"] if one["id"] == "step/mean")
    explained = step["outcome"] == "machine" and (step["after"] < step["before"]) == is_faster
    return not explained and cause["outcome"] == "changed"


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--load", type=int, default=1, help="processes beside the loaded recordings (default: 1)"
    )
    parser.add_argument(
        "-o",
        "--output",
        type=Path,
        required=True,
        metavar="DIR",
        help="runs; what is there is kept",
    )
    parser.add_argument("--json", type=Path)
    args = parser.parse_args()
    args.output.mkdir(parents=True, exist_ok=True)
    runs = {
        (variant, load): args.output / f"{variant.replace(' ', '-')}-{load}"
        for variant in VARIANTS
        for load in (0, args.load)
    }
    for (variant, load), run in runs.items():
        record(run, variant, load)
    pairs = [*CHANGES, *((variant, variant, (), True) for variant in UNCHANGED)]
    rows, diffs = [["A -> B", "CPUs used by others", "says", "right"]], []
    for before, after, named, is_faster in pairs:
        for loads in ((0, args.load), (args.load, 0)):
            diff = compared([runs[before, loads[0]]], [runs[after, loads[1]]])
            others = " -> ".join(
                f"{diff['machine'][f'others_{side}']:.2f}" for side in ("before", "after")
            )
            ok = right(diff, named, is_faster)
            what = f"{before} -> {after}" if named else f"{before}, unchanged"
            rows.append([what, others, diff["conclusion"], "yes" if ok else "**no**"])
            diffs.append(
                {"before": before, "after": after, "loads": loads, "right": ok, "diff": diff}
            )
    print(table(rows))
    print(f"\nRight: {sum(one['right'] for one in diffs)} of {len(diffs)}.")
    write_json(args.json, diffs=diffs)


if __name__ == "__main__":
    main()
