"""Does the advice about loaders help? Small trainings are recorded, what the findings advise is applied, and plain twins take turns.

    python benchmarks/advice_tried.py [--only jpeg,memory] [--every 1] [--rounds 7] [--json advice_tried.json]

``feedline run`` records programs/advised_training.py on a grid: data in memory, small and large JPEGs, transforms in Python, padded tokens
as Hugging Face makes them, arrays, rows from a slow place; 4 to 256 samples per batch; 0.3 to 50 ms per step, of the CPU and of an
accelerator; 0 to 4 workers. The first finding that advises a number of workers or another collate becomes the program's argument. The
twins run without feedline, in one process, epoch by epoch in turns. Prints Markdown.
"""

import argparse
import itertools
import json
import shlex
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from twins import Estimate, machine, table, wait_for_quiet, write_json

PROGRAM = Path(__file__).resolve().parent / "programs" / "advised_training.py"
FASTER, SLOWER = (
    0.98,
    1.05,
)  # a ratio of steps below the first counts as faster, above the second as harm

#: data -> (samples per batch, its collate where that is not the default)
DATA: dict[str, tuple[Sequence[int], str]] = {
    "memory": ((4, 32, 256), "default"),
    "images": ((8, 64), "default"),
    "jpeg": ((4, 32), "default"),
    "heavy": ((4, 16), "default"),
    "numpy": ((4, 32), "default"),
    "tokens": ((8, 64), "padded"),
    "arrays": ((16, 64), "stacked"),
    "far": ((4, 16), "default"),
}
#: What stands for the model: products of matrices (0.2 to 0.3 ms each), or an accelerator's time.
MODELS = ("", "--products 5", "--products 60", "--sleep-ms 3", "--sleep-ms 15", "--sleep-ms 50")
WORKERS = (0, 1, 2, 4)
WHOLE = ("--data memory", "--data images")  # what the program can make in one call
Turn = tuple[float, float]  # seconds per step, by the clock and of the main thread's CPU time
COLLATE_FIXES = ("custom_collate", "objects_in_queue")


@dataclass(frozen=True)
class Tried:
    """One training of the grid.

    Attributes:
        cause, advice: of the finding that was applied; empty where none advises something to apply.
        others: causes of all findings.
        cost_share: what the finding says can be saved at most, of the step.
        before_ms, after_ms, ratio: of plain twins; of the ratio after / before, its median and
            interval.
        cpu_ratio: the same of the main thread's CPU time, which neighbors do not stretch. A step
            cannot be shorter than that; without workers, on a CPU of its own, it is that and what
            it sleeps.
    """

    training: str
    rule_id: str
    advice: str
    others: list[str]
    cost_share: float
    before_ms: float | None = None
    after_ms: float | None = None
    ratio: Estimate | None = None
    cpu_ratio: Estimate | None = None

    @property
    def outcome(self) -> str:
        if self.ratio is None:
            return "nothing to apply"
        if self.ratio.median < FASTER:
            return "faster"
        return "slower" if self.ratio.median > SLOWER else "same"


def grid() -> Iterator[str]:
    """Every kind of data with every model; batch sizes and workers take turns."""
    for turn, (data, model) in enumerate(itertools.product(DATA, MODELS)):
        batches, collate = DATA[data]
        for again in range(2):
            number = turn + 3 * again
            collate = "arrays" if data == "arrays" and number % 2 else collate
            yield (
                f"--data {data} --collate {collate} --batch {batches[number % len(batches)]} "
                f"--workers {WORKERS[number % 4]} {model}"
            )


def steps(training: str) -> int:
    """Per epoch, for about a second of each."""
    slow = "heavy" in training or "arrays" in training or "50" in training or "60" in training
    return (
        40
        if slow
        else 100
        if "15" in training or "--products 5" in training or "--batch 4 " not in training
        else 200
    )


def advice(training: str, findings: list[dict[str, Any]]) -> tuple[str, str]:
    """The first finding that a command-line argument can follow, and that argument; empty where
    there is none.
    """
    for finding in findings:
        if "num_workers" in finding["settings"] and finding["severity"] != "info":
            return finding["cause"], f"--workers {finding['settings']['num_workers']}"
        if finding["cause"] in COLLATE_FIXES:
            return finding["cause"], "--collate default"
        if finding["cause"] == "made_one_by_one" and training.startswith(WHOLE):
            return finding["cause"], "--whole"
    return "", ""


def record(training: str, folder: Path) -> dict[str, Any]:
    """The report of the training under feedline.

    Raises:
        RuntimeError: it failed.
    """
    out = folder / "report.json"
    command = [
        sys.executable,
        "-m",
        "feedline",
        "run",
        "-q",
        "-f",
        "-o",
        str(folder / "run"),
        "--json",
        str(out),
        str(PROGRAM),
    ]
    ended = subprocess.run([*command, *shlex.split(training)], capture_output=True, text=True)
    if ended.returncode:
        raise RuntimeError(ended.stderr[-2000:])
    found: dict[str, Any] = json.loads(out.read_text())
    return found


def twins(training: str, change: str, rounds: int) -> list[tuple[Turn, Turn]]:
    """Before and after, round by round."""
    command = [
        sys.executable,
        str(PROGRAM),
        *shlex.split(training),
        f"--twin={change}",
        "--rounds",
        str(rounds),
    ]
    ended = subprocess.run(command, capture_output=True, text=True, check=True)
    return [((a[0], a[1]), (b[0], b[1])) for a, b in json.loads(ended.stdout)]


def attempt(training: str, rounds: int, quiet: float) -> Tried:
    training = f"{training} --steps {steps(training)}"
    wait_for_quiet(quiet, 600)
    with tempfile.TemporaryDirectory() as folder:
        report = record(training, Path(folder))
    findings = report["findings"]
    rule_id, change = advice(training, findings)
    costs = {
        finding["cause"]: (finding["cost_s"] or 0.0) / report["step"]["mean_s"]
        for finding in findings
    }
    said = Tried(training, rule_id, change, list(costs), costs.get(rule_id, 0.0))
    if not change:
        return said
    pairs = twins(training, change, rounds)
    before, after = (Estimate.of([turn[0] for turn in side]).median * 1e3 for side in zip(*pairs))
    ratio, cpu_ratio = (Estimate.of([b[clock] / a[clock] for a, b in pairs]) for clock in (0, 1))
    return Tried(
        training, rule_id, change, said.others, said.cost_share, before, after, ratio, cpu_ratio
    )


def row(tried: Tried) -> list[str]:
    if tried.ratio is None or tried.cpu_ratio is None:
        return [tried.training, " ".join(tried.others), "", "", "", "", "", ""]
    saved = f"{100 * tried.cost_share:.0f} %"
    times = [f"{ms:.2f}" for ms in (tried.before_ms, tried.after_ms) if ms is not None]
    return [
        tried.training,
        tried.rule_id,
        tried.advice,
        saved,
        *times,
        tried.ratio.text(),
        tried.cpu_ratio.text(),
    ]


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--only", default="", help="kinds of data, separated by commas")
    parser.add_argument("--every", type=int, default=1, help="try one training of the grid in N")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument(
        "--quiet",
        type=float,
        default=1.0,
        help="wait up to 10 minutes for a load average below this before each",
    )
    parser.add_argument("--json", type=Path)
    given = parser.parse_args()
    wanted = [
        training
        for training in grid()
        if not given.only or training.split()[1] in given.only.split(",")
    ][:: given.every]
    found = []
    for training in wanted:
        found.append(attempt(training, given.rounds, given.quiet))
        print(found[-1].outcome, *row(found[-1]), sep=" | ", file=sys.stderr, flush=True)
    tried = [one for one in found if one.ratio is not None]
    outcomes = [one.outcome for one in tried]
    counts = ", ".join(f"{outcomes.count(kind)} {kind}" for kind in ("faster", "same", "slower"))
    print(f"{machine()}\n\n{len(found)} trainings, advice applied in {len(tried)}: {counts}\n")
    head = [
        "training",
        "finding",
        "advice",
        "saves at most",
        "ms per step",
        "with it",
        "ratio",
        "CPU of the main thread",
    ]
    print(table([head, *map(row, sorted(tried, key=lambda one: one.rule_id))]))
    print("\nWithout advice to apply:\n")
    print(table([["training", "findings"], *(row(one)[:2] for one in found if one.ratio is None)]))
    write_json(given.json, tried=[{**asdict(one), "outcome": one.outcome} for one in found])


if __name__ == "__main__":
    main()
