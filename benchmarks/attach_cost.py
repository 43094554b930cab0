"""What `feedline attach` costs a training that it looks at: CPU and wall time of the training for the
same steps, in turns with and without, and the CPU time of feedline itself.

    python benchmarks/attach_cost.py --rounds 10 --json out.json

The training runs a fixed number of steps (tests/attach/programs/slow_dataset.py), and is looked at for
nearly all of that time. Its own CPU time shows what reading its memory does to it; feedline's is what the
machine pays.
"""

import argparse
import json
import os
import subprocess
import sys
import time
from pathlib import Path

from twins import Estimate, in_turns, machine, table, wait_for_quiet, write_json

PROGRAM = Path(__file__).parent.parent / "tests" / "attach" / "programs" / "slow_dataset.py"


def measure(how: str, steps: int, workers: int) -> dict[str, float]:
    """CPU and wall seconds of the training, and CPU seconds of feedline, in one run."""
    begin = time.perf_counter()
    words = [sys.executable, str(PROGRAM), str(workers), "fork", "0", str(steps)]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    training = subprocess.Popen(words, stdout=subprocess.PIPE, text=True, env=environment)
    assert training.stdout
    training.stdout.readline()
    begun = time.perf_counter()
    spent = {"start_s": begun - begin, "looking_cpu_s": 0.0, "attach_cpu_s": 0.0}
    if how == "attach":
        command = [sys.executable, "-m", "feedline", "attach", str(training.pid)]
        seen = subprocess.Popen(
            [*command, "--seconds", "600", "--json", "-"], stdout=subprocess.PIPE, text=True
        )
    training.stdout.read()
    _, _, usage = os.wait4(training.pid, 0)
    spent |= {"cpu_s": usage.ru_utime + usage.ru_stime, "wall_s": time.perf_counter() - begun}
    if how == "attach":
        assert seen.stdout
        spent["looking_cpu_s"] = json.loads(seen.stdout.read())["cost_s"]
        _, _, usage = os.wait4(seen.pid, 0)
        spent["attach_cpu_s"] = usage.ru_utime + usage.ru_stime
    return spent


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=10)
    parser.add_argument("--steps", type=int, default=2000)
    parser.add_argument("--workers", type=int, default=1)
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    load = wait_for_quiet(1.0, 60.0)
    ways = ("alone", "attach")
    rounds = list(
        in_turns(ways, lambda how: measure(how, options.steps, options.workers), options.rounds)
    )
    ratios = {
        name: Estimate.of([pair["attach"][name] / pair["alone"][name] - 1 for pair in rounds])
        for name in ("cpu_s", "wall_s")
    }
    for name in ("looking_cpu_s", "attach_cpu_s"):
        ratios[name] = Estimate.of(
            [pair["attach"][name] / pair["alone"]["cpu_s"] for pair in rounds]
        )
    names = {
        "cpu_s": "CPU time of the training, more with attach",
        "wall_s": "wall time of its steps, more with attach",
        "looking_cpu_s": "CPU time of feedline while it looks, of the training's",
        "attach_cpu_s": "the same with its start and its report",
    }
    rows = [["what", "median", "95 % interval"]]
    for name, ratio in ratios.items():
        ends = f"{100 * ratio.low:+.2f} to {100 * ratio.high:+.2f} %"
        rows.append([names[name], f"{100 * ratio.median:+.2f} %", ends])
    print(f"{options.rounds} pairs of {options.steps} steps, load {load:.1f}, {machine()['cpu']}\n")
    print(table(rows))
    write_json(options.json, rounds=rounds)


if __name__ == "__main__":
    main()
