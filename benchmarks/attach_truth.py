"""Does `feedline attach` say of a training what its recording says: shares of the step, and the verdict?

    python benchmarks/attach_truth.py [--seconds 20] [--only logged,own_loop] [--json out.json]

Ten trainings (tests/attach/programs/slow_dataset.py and some of slow_calls/) are recorded in full, and looked at
from outside for a part of that time. Prints, of each, the shares of the main process by both, the largest
difference, and both verdicts.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from twins import machine, table, wait_for_quiet

HERE = Path(__file__).resolve().parent
SLOW = HERE.parent / "tests" / "attach" / "programs" / "slow_dataset.py"
POINTS = 5.0
#: Row of the comparison -> the stages of a recording, and the places of samples, that it is.
ROWS = {
    "input": ("epoch_start", "sampler", "wait", "transport", "dataset", "collate", "read", "decode", "augment"),
    "forward": ("forward",),
    "backward": ("backward",),
    "optimizer": ("optimizer",),
    "the rest": ("loss", "gradients", "other"),
}  # fmt: skip
BEFORE_S = 12.0  # until workers, caches and the first steps have settled


@dataclass(frozen=True)
class Row:
    """A training: shares (0 to 1) by row, and what is said to limit it."""

    name: str
    recorded: dict[str, float]
    attached: dict[str, float]
    said_recorded: str
    said_attached: str

    @property
    def off(self) -> float:
        """The largest difference, in points."""
        return max(100 * abs(self.recorded[row] - self.attached[row]) for row in ROWS)


def trainings(seconds: float) -> dict[str, list[str]]:
    """Name -> words of the command line."""
    calls = HERE / "slow_calls"
    more = ["--seconds", str(seconds)]
    of_calls = (
        "dates_parsed",
        "volume_unpacked",
        "json_parsed",
        "state_copied",
        "logged",
        "own_loop",
    )
    return {
        "no workers": [str(SLOW), "0", "none", str(seconds), "5"],
        "fork": [str(SLOW), "2", "fork", str(seconds), "5"],
        "spawn": [str(SLOW), "2", "spawn", str(seconds), "5"],
        **{name: [str(calls / f"{name}.py"), *more] for name in of_calls},
        "healthy": [str(calls / "dates_parsed.py"), "--twin", *more],
    }  # fmt: skip


def measure(name: str, words: list[str], seconds: float, folder: Path) -> Row:
    """Record a training, and look at it meanwhile."""
    run, seen = folder / name, folder / f"{name}.json"
    command = [sys.executable, "-m", "feedline"]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    training = subprocess.Popen(
        [*command, "run", "-q", "-o", str(run), *words], stdout=subprocess.DEVNULL, env=environment
    )
    time.sleep(BEFORE_S)
    subprocess.run(
        [*command, "attach", str(training.pid), "--seconds", str(seconds), "--json", str(seen), "-q"],
        check=True,
    )  # fmt: skip
    assert training.wait() == 0
    report, attached = json.loads((run / "report.json").read_text()), json.loads(seen.read_text())
    step = report["step"]
    return Row(
        name,
        by_rows({stage: s / step["mean_s"] for stage, s in step["stages"].items()}),
        by_rows({place: row["share"] for place, row in attached["sampled"]["main"].items()}),
        report["verdict"]["limit"],
        attached["limit"],
    )


def by_rows(shares: Mapping[str, float]) -> dict[str, float]:
    """Add shares up by row; the last takes what no other has."""
    added = {row: sum(shares.get(name, 0.0) for name in of) for row, of in ROWS.items()}
    known = {name for of in ROWS.values() for name in of}
    added["the rest"] += sum(share for name, share in shares.items() if name not in known)
    return added


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--seconds", type=float, default=20.0, help="to look at each")
    parser.add_argument("--only", default="", help="some of them")
    parser.add_argument("--json", type=Path)
    given = parser.parse_args()
    load = wait_for_quiet(1.0, 60.0)
    rows: list[Row] = []
    text: list[list[Any]] = [["training", *ROWS, "off by, points", "recorded", "attached"]]
    with tempfile.TemporaryDirectory() as folder:
        for name, words in trainings(given.seconds + 2 * BEFORE_S).items():
            if given.only and name not in given.only.split(","):
                continue
            row = measure(name, words, given.seconds, Path(folder))
            pairs = [
                f"{100 * row.recorded[of]:.0f} / {100 * row.attached[of]:.0f} %" for of in ROWS
            ]
            text.append([name, *pairs, f"{row.off:.1f}", row.said_recorded, row.said_attached])
            rows.append(row)
            print(text[-1], file=sys.stderr, flush=True)
    print(f"{given.seconds:.0f} s each, load {load:.1f}, {machine()['cpu']}\n")
    print(table(text))
    within = sum(row.off <= POINTS for row in rows)
    print(f"\n{within} of {len(rows)} within {POINTS:.0f} points in every row")
    if given.json:
        given.json.write_text(json.dumps([asdict(row) for row in rows], indent=1))


if __name__ == "__main__":
    main()
