"""What sampling stacks costs a recorded training: recordings with and without, in turns.

    python benchmarks/stacks_cost.py --pairs 5 --seconds 30 --json out.json

Four trainings (programs/sampled_training.py): JPEGs and texts with two workers, steps of 1 and of 10 ms. Both
sides are recorded (``FEEDLINE=1``), so that only the sampling differs. The CPU time of the training's own
processes shows what it does to them; that of the helper, which becomes a child of this process when its
parent has ended, is what the machine pays. Parameters must be the same to the bit.
"""

import argparse
import ctypes
import functools
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path

from twins import Estimate, in_turns, machine, table, wait_for_quiet, write_json

PROGRAM = Path(__file__).parent / "programs" / "sampled_training.py"
KINDS = ("jpeg", "text", "1", "10")
_PR_SET_CHILD_SUBREAPER = 36


def record(kind: str, steps: int, how: str, folder: str) -> dict[str, object]:
    """Run the training to its end; what it says of itself, and the CPU seconds of orphans."""
    environment = {"OMP_NUM_THREADS": "1", "PYTHONHASHSEED": "0"}
    if how != "alone":
        environment |= {"FEEDLINE": "1", **({"FEEDLINE_STACKS": "0"} if how == "off" else {})}
    training = subprocess.Popen(
        [sys.executable, str(PROGRAM), kind, str(steps)],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        cwd=folder,
        env={**os.environ, **environment},
    )
    assert training.stdout
    said: dict[str, object] = json.loads(training.stdout.read().splitlines()[-1])
    helper_s = 0.0
    while True:
        try:
            pid, _, usage = os.wait4(-1, 0)
        except ChildProcessError:
            break
        if pid != training.pid:
            helper_s += usage.ru_utime + usage.ru_stime
    training.returncode = 0
    return {**said, "helper_s": helper_s}


def ratio(pairs: list[Mapping[str, Mapping[str, float]]], what: str) -> Estimate:
    return Estimate.of([pair["on"][what] / pair["off"][what] - 1 for pair in pairs])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--pairs", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=30.0)
    parser.add_argument("--kinds", default=",".join(KINDS), help="some of them")
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, 1)
    load = wait_for_quiet(1.0, 60.0)
    rows = [
        [
            "training",
            "CPU of its own processes",
            "wall of its loop",
            "CPU of the helper",
            "parameters",
        ]
    ]
    kept = {}
    with tempfile.TemporaryDirectory() as folder:
        for kind in options.kinds.split(","):
            steps = steps_in(kind, options.seconds, folder)
            pairs = list(
                in_turns(
                    ("off", "on"),
                    functools.partial(record, kind, steps, folder=folder),
                    options.pairs,
                )
            )
            same = len({pair[how]["parameters"] for pair in pairs for how in pair}) == 1
            helper = Estimate.of([pair["on"]["helper_s"] / pair["on"]["cpu_s"] for pair in pairs])
            figures = (ratio(pairs, "cpu_s"), ratio(pairs, "wall_s"), helper)
            name = kind if kind in ("jpeg", "text") else f"steps of {kind} ms"
            rows.append([name, *map(percent, figures), "the same" if same else "DIFFER"])
            kept[kind] = pairs
            print(rows[-1], file=sys.stderr, flush=True)
    print(
        f"{options.pairs} pairs of {options.seconds:.0f} s, load {load:.1f}, {machine()['cpu']}\n"
    )
    print(table(rows))
    write_json(options.json, **kept)


def steps_in(kind: str, seconds: float, folder: str) -> int:
    """Return how many steps take about so long: the first ones take longer than the others."""
    steps = 200 if kind in ("jpeg", "text") else 500
    for part in (0.1, 1.0):
        took = record(kind, steps, "off", folder)["wall_s"]
        assert isinstance(took, float)
        steps = max(steps, int(steps * part * seconds / took))
    return steps


def percent(estimate: Estimate) -> str:
    low, high = 100 * estimate.low, 100 * estimate.high
    return f"{100 * estimate.median:+.2f} % ({low:+.2f} to {high:+.2f})"


if __name__ == "__main__":
    main()
