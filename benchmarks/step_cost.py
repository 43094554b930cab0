"""What feedline costs a step, of steps from 0.3 to 100 ms.

    python benchmarks/step_cost.py --pairs 40 --json out.json

Two processes of one training wait side by side, one of them under feedline, and make blocks of steps in turns: two neighboring blocks see
nearly the same machine, and each is a long run of its own. The first block of each (imports, warm-up, the window at the start) is left
out. Prints Markdown: medians over the pairs with 95 % bootstrap intervals. CPU time is that of the whole process.
"""

import argparse
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import asdict
from pathlib import Path

from twins import Estimate, in_turns, machine, table, write_json

TRAINING = Path(__file__).parent / "programs" / "steps_on_demand.py"
STEPS = {
    "0.3 ms": (64, 16, 1500),
    "1 ms": (400, 64, 500),
    "10 ms": (1000, 256, 40),
    "100 ms": (2048, 700, 5),
}  # width, batch, in a block
ON_A_GPU = {
    "1 ms": (2048, 2000, 500),
    "10 ms": (8192, 1200, 50),
    "100 ms": (8192, 12000, 5),
}  # with some 50 TFLOP/s
# steps of the block that does not count, at least: on a GPU the window of torch.profiler ends after
# 26
FIRST = 60
Block = tuple[float, float]  # CPU and wall seconds


@contextmanager
def training(command: list[str], environment: dict[str, str]) -> Iterator["subprocess.Popen[str]"]:
    process = subprocess.Popen(
        command,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        bufsize=1,
        env={**os.environ, **environment},
        cwd="/",  # python -m feedline takes the package of the working directory first
    )
    try:
        yield process
    finally:
        process.communicate()


def block(process: "subprocess.Popen[str]", steps: int) -> Block:
    assert process.stdin is not None and process.stdout is not None
    process.stdin.write(f"{steps}\n")
    cpu, wall = process.stdout.readline().split()
    return float(cpu), float(wall)


def pairs_of(
    width: int, batch: int, steps: int, number: int, ways: list[str], other: str, device: str
) -> list[dict[str, Block]]:
    """Blocks in turns, one list entry for each pair."""
    alone = [str(TRAINING), str(width), str(batch), device]
    with tempfile.TemporaryDirectory() as folder, ExitStack() as running:
        under = [sys.executable, "-m", "feedline", "run", "-q", "-o"]
        commands = {
            "plain": [sys.executable, *alone],
            "feedline": [*under, f"{folder}/run", *alone],
        }
        commands["the other feedline"] = [other, *under[1:], f"{folder}/other", *alone]
        commands["plain again"] = commands["plain"]
        commands["every step in full"] = [*under, f"{folder}/full", *alone]
        full = {"FEEDLINE_RESTS": "0"}
        started = {
            way: running.enter_context(
                training(commands[way], full if way.startswith("every") else {})
            )
            for way in ways
        }
        for process in started.values():
            block(process, max(steps, FIRST) if device != "cpu" else steps)
        return list(in_turns(ways, lambda way: block(started[way], steps), number))


def compared(pairs: list[dict[str, Block]], way: str, which: int) -> Estimate:
    """Neighboring pairs, of both orders, are one value."""
    ratios = [pair[way][which] / pair["plain"][which] - 1 for pair in pairs]
    return Estimate.of(
        [(one + other) / 2 for one, other in zip(ratios[::2], ratios[1::2], strict=False)]
    )


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--pairs", type=int, default=40)
    parser.add_argument("--full", action="store_true", help="also with every step recorded in full")
    parser.add_argument("--control", action="store_true", help="also between two plain processes")
    parser.add_argument(
        "--other",
        metavar="PYTHON",
        help="also under the feedline of another virtual environment: an older commit",
    )
    parser.add_argument(
        "--steps",
        nargs="*",
        choices=STEPS,
        help="of about these lengths (default: all of the device)",
    )
    parser.add_argument("--device", default="cpu", choices=("cpu", "cuda"))
    parser.add_argument("--json", type=Path)
    args = parser.parse_args()
    ways = [
        "plain",
        "feedline",
        *(["every step in full"] if args.full else []),
        *(["plain again"] if args.control else []),
    ]
    ways += ["the other feedline"] if args.other else []
    rows, kept = (
        [["step", "under feedline", "CPU us of a step", "CPU %", "wall %", "pairs of both orders"]],
        {},
    )
    sizes = STEPS if args.device == "cpu" else ON_A_GPU
    for name in args.steps or sizes:
        width, batch, steps = sizes[name]
        kept[name] = pairs = pairs_of(
            width, batch, steps, args.pairs, ways, args.other, args.device
        )
        own = Estimate.of([pair["plain"][0] / steps for pair in pairs])
        for way in ways[1:]:
            cpu, wall = compared(pairs, way, 0), compared(pairs, way, 1)
            rows.append(
                [name, way, own.text(1e6, 0), cpu.text(100), wall.text(100), str(cpu.pairs)]
            )
            print(f"  {name} {way}: CPU {asdict(cpu)}", file=sys.stderr, flush=True)
    print(f"{machine()}\n\n{table(rows)}")
    write_json(args.json, blocks=kept)


if __name__ == "__main__":
    main()
