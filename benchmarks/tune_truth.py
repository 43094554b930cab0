"""Is the advice of ``feedline tune`` the best that there is? The recordings and the grid of whatif_truth.py, and the advice, really run.

    python benchmarks/whatif_truth.py --keep kept --json kept/whatif.json
    python benchmarks/tune_truth.py kept [--rounds 4] [--seconds 5] [--json tune.json]

For each recorded training: the advice that ``feedline tune`` gives of the one recording, and the best setting of the grid that keeps the
order of batches. Both then run in turns in one process, so that a drift of the machine helps both alike; the advice should reach 95 % of
the other. Prints Markdown, with the time of the search and that of the grid.
"""

import argparse
import json
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import median

from twins import machine, table, wait_for_quiet, write_json
from whatif_truth import RECORDED, Settings, late_server, program

MOST_WORKERS = 6  # as in the grid
GOAL = 0.95


@dataclass(frozen=True)
class Tuned:
    """One training, in samples/s.

    Attributes:
        advised, best: settings of the advice, and the best of the grid.
        measured_advised, measured_best: of each round, in turns.
        search_s, grid_s: seconds of the search, and of the grid's runs at least.
    """

    training: str
    advised: Settings
    best: Settings
    measured_advised: list[float]
    measured_best: list[float]
    search_s: float
    grid_s: float

    @property
    def reached(self) -> float:
        """The advice over the best of the grid: the median of the rounds."""
        return median(
            one / other
            for one, other in zip(self.measured_advised, self.measured_best, strict=True)
        )


def advice(run: Path) -> tuple[Settings, float]:
    """Settings, and seconds of the search."""
    command = [
        sys.executable,
        "-m",
        "feedline",
        "tune",
        str(run),
        "--max-workers",
        str(MOST_WORKERS),
        "--json",
    ]
    found = json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
    return found["best"]["settings"], found["took_s"]


def best_of(
    grid: Sequence[dict[str, list[float] | Settings | str]], training: str
) -> tuple[Settings, int]:
    """The fastest settings that keep the order of batches, and how many runs the grid took."""
    own = [(one["settings"], one["measured"]) for one in grid if one["training"] == training]
    ordered = [(settings, rates) for settings, rates in own if settings.get("in_order", True)]
    return max(ordered, key=lambda one: median(one[1]))[0], sum(len(rates) for _, rates in own)


def in_turns(
    training: str, kept: Path, port: str, seconds: float, settings: list[Settings], rounds: int
) -> list[list[float]]:
    """Samples/s of each round, for each of the settings; every second round in the other order.

    The first run of all warms up.
    """
    order = [
        index if number % 2 == 0 else len(settings) - 1 - index
        for number in range(rounds)
        for index in range(len(settings))
    ]
    command = program(
        training, kept, port, seconds, [RECORDED, *(settings[index] for index in order)]
    )
    ended = subprocess.run([sys.executable, *command], check=True, capture_output=True, text=True)
    found: list[list[float]] = [[] for _ in settings]
    for index, line in zip(order, ended.stdout.splitlines()[1:], strict=True):
        run = json.loads(line)
        found[index].append(run["samples"] / run["seconds"])
    return found


def row(one: Tuned) -> list[str]:
    said, best = (
        " ".join(f"{name}={value}" for name, value in settings.items())
        for settings in (one.advised, one.best)
    )
    rates = [f"{median(rates):.1f}" for rates in (one.measured_advised, one.measured_best)]
    times = f"{one.search_s:.1f} s and {one.grid_s:.0f} s"
    return [one.training, said, rates[0], best, rates[1], f"{100 * one.reached:.1f} %", times]


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "kept", type=Path, help="folder of whatif_truth.py --keep, with its whatif.json"
    )
    parser.add_argument("--rounds", type=int, default=4)
    parser.add_argument("--seconds", type=float, default=5, help="of each run, at least")
    parser.add_argument(
        "--quiet",
        type=float,
        default=1.0,
        help="wait up to 10 minutes for a load average below this",
    )
    parser.add_argument("--json", type=Path)
    given = parser.parse_args()
    grid = json.loads((given.kept / "whatif.json").read_text())["compared"]
    wait_for_quiet(given.quiet, 600)
    found: list[Tuned] = []
    with late_server() as port:
        for training in dict.fromkeys(one["training"] for one in grid):
            advised, took_s = advice(given.kept / f"run-{training}")
            best, runs = best_of(grid, training)
            rates = in_turns(
                training, given.kept, port, given.seconds, [advised, best], given.rounds
            )
            found.append(Tuned(training, advised, best, *rates, took_s, runs * given.seconds))
    print(f"{machine()}\n")
    print(
        table(
            [
                [
                    "training",
                    "advice",
                    "samples/s",
                    "best of the grid",
                    "samples/s",
                    "reached",
                    "search and grid",
                ],
                *map(row, found),
            ]
        )
    )
    print(
        f"\n{sum(one.reached >= GOAL for one in found)} of {len(found)} reach {100 * GOAL:.0f} % "
        f"of the best of the grid."
    )
    write_json(given.json, tuned=[{**asdict(one), "reached": one.reached} for one in found])


if __name__ == "__main__":
    main()
