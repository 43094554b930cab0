"""Are transfer, culprit, cost of a late rank and replayed steps true? Hosts in network namespaces, each with its own clock; needs root.

    python benchmarks/straggler_truth.py [--ranks 3,4] [--mbit 200] [--keep FOLDER] [--json straggler_truth.json]

``feedline run`` records programs/straggling_ddp.py. Its ranks are in time namespaces (unshare --time), so that their clocks are seconds and
hours apart, and each step has a rank that is 0, 20, 50 or 80 ms late. The truth of a transfer is what the program itself measures after
barriers, by the time of day that all ranks share; of a late rank's cost, how much longer the steps with that delay are than those without.
``even link`` is the replay that knows no more of the link than its mean bandwidth and latency.
"""

import argparse
import functools
import json
import shutil
import subprocess
import sys
import tempfile
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path

import netlab
import numpy as np
from programs.straggling_ddp import DELAYS_MS, WARM_UP, planned
from twins import table, write_json

from feedline.analysis.intervals import IntArray
from feedline.analysis.ranks import blame
from feedline.analysis.ranks.buckets import cut_timeline
from feedline.analysis.ranks.comparison import _fit_link
from feedline.analysis.ranks.cross_rank import combine
from feedline.analysis.ranks.match import MISSING, CollectiveTable
from feedline.analysis.ranks.read_collectives import collectives_of
from feedline.analysis.ranks.replay import BucketReplay
from feedline.analysis.traces.collectives import Collectives, RankClock
from feedline.profiler.store.trainings import open_run

PROGRAM = Path(__file__).resolve().parent / "programs" / "straggling_ddp.py"
AHEAD_S = (0, 5_000, 31, 777_777)  # each rank's clock
LIMIT_S = 120.0
CLAIMED_MS = 20.0  # delays from which on the culprit has to be found


@dataclass(frozen=True)
class Truth:
    """What the training measured of its own buckets, s: all ranks at once, and one of them late."""

    bucket_s: list[float]
    late_bucket_s: list[float]
    buckets: int

    def transfer_ms(self, late: bool) -> float:
        """Of a step: whoever is late is so for its first bucket."""
        first = self.late_bucket_s if late else self.bucket_s
        return float(np.median(first) + np.median(self.bucket_s) * (self.buckets - 1)) * 1e3


@dataclass(frozen=True)
class Held:
    """What was found for one delay, beside what is so. Times in ms, medians over its steps."""

    ranks: int
    clocks: str
    delay: float
    steps: int
    transfer: float
    transfer_true: float
    culprit_right: float
    last_right: float
    phase_right: float
    waited: float
    step: float
    replayed: float
    even: float
    cost: float
    cost_true: float


def record(net: netlab.Lab, folder: Path, ranks: int, steps: int) -> None:
    """One rank on each host.

    Without time namespaces all clocks are one, and nothing is shown about clocks.
    """
    chosen = [
        sys.executable,
        "-m",
        "feedline",
        "run",
        "-q",
        "-f",
        "--torch-profiler",
        "off",
        "-o",
        str(folder / "run"),
        str(PROGRAM),
    ]
    ahead = ["sh", "-c", f'set -- {" ".join(map(str, AHEAD_S))} -- "$@"; eval "own=\\${{$((RANK + '
                         f'1))}}"; shift {len(AHEAD_S) + 1}; '
             'exec unshare --time --monotonic "$own" "$@"', "sh"]  # fmt: skip
    prefix = ahead if time_namespaces() else []
    net.together(
        ranks,
        [*prefix, *chosen, "--steps", str(steps), "--truth", str(folder / "truth.json")],
        folder,
        LIMIT_S,
    )


@functools.cache
def time_namespaces() -> bool:
    """Whether this kernel has them."""
    return (
        shutil.which("unshare") is not None
        and subprocess.run(
            ["unshare", "--time", "--monotonic", "9", "true"], capture_output=True
        ).returncode
        == 0
    )


def read(path: Path) -> list[Collectives]:
    """The collectives of all ranks, in their own time."""
    found = [collectives_of(rank) for _, rank in sorted(open_run(path).ranks.items())]
    return [one for one in found if one is not None]


def without_clocks(ranks: Sequence[Collectives]) -> list[Collectives]:
    """As in a trace that somebody else made."""
    nothing = np.zeros(0, np.int64)
    return [replace(one, clock=RankClock(nothing, nothing, np.inf)) for one in ranks]


def hold(ranks: list[Collectives], clocks: str, truth: Truth) -> tuple[list[Held], float, float]:
    """Analyse, and hold it against the plan. Also: the clock bound, and the true error of the
    alignment (ms), of which the truth is what the time namespaces were told.
    """
    together = combine(ranks)
    matched, alignment, parts = (
        together.matched,
        together.alignment,
        list(together.partitions.values()),
    )
    found = blame.blame_steps(together)
    made = cut_timeline(together, WARM_UP)
    asked = BucketReplay(made, _fit_link(made, together))
    costs = np.stack([asked.cost(column) for column in range(len(ranks))], 1) * 1e3
    moved = (
        np.stack(
            [part.parts["hidden_transfer"] + part.parts["exposed_transfer"] for part in parts], 1
        ).mean(1)
        / 1e6
    )
    last = last_to_arrive(ranks, matched)
    rows: dict[float, list[tuple[float, ...]]] = defaultdict(list)
    for index, number in enumerate(made.numbers.tolist()):
        late, ms = planned(number, len(ranks))
        guilty = int(found.column[number])
        phase = max(found.excess, key=lambda name: int(found.excess[name][number]))
        right = guilty == late if ms else bool(found.late[number] < CLAIMED_MS / 2 * 1e6)
        shares = (
            float(right),
            float(guilty == last[number] if ms else right),
            float(phase == "wait"),
        )
        times = (
            moved[number],
            found.waited[number] / 1e6,
            made.period[index] / 1e6,
            asked.base[index] * 1e3,
            asked.even[index] * 1e3,
            costs[index, late],
        )
        rows[ms].append((*shares, *times))
    return (
        summed(len(ranks), clocks, rows, truth),
        alignment.bound / 1e6,
        error_ms(matched.end, alignment.reference(matched.end), ranks),
    )


def summed(
    ranks: int, clocks: str, rows: dict[float, list[tuple[float, ...]]], truth: Truth
) -> list[Held]:
    """One line for each delay: shares of right answers, medians of times, means of steps."""
    healthy = float(np.median(np.array(rows[0.0])[:, 5]))
    held = []
    for ms in DELAYS_MS:
        of = np.array(rows[ms])
        culprit, arrived, phase = of[:, :3].mean(0).tolist()
        transfer, waited, step, _, _, cost = np.median(of[:, 3:], 0).tolist()
        means = of[:, 5:8].mean(0).tolist()
        held.append(
            Held(
                ranks,
                clocks,
                ms,
                len(of),
                transfer,
                truth.transfer_ms(ms > 0),
                culprit,
                arrived,
                phase,
                waited,
                *means,
                cost,
                step - healthy,
            )
        )
    return held


def last_to_arrive(ranks: Sequence[Collectives], matched: CollectiveTable) -> list[int]:
    """For each step the rank that truly was furthest behind the others: other programs on this
    machine delay ranks as well.
    """
    start = np.stack(
        [matched.start[:, column] - ahead_ns(one.rank) for column, one in enumerate(ranks)], 1
    )
    behind = start - np.median(start, 1, keepdims=True)
    step = ranks[0].step_at(matched.start[:, 0])
    return [
        int(behind[step == number].max(0).argmax()) if (step == number).any() else -1
        for number in range(len(ranks[0].steps))
    ]


def ahead_ns(rank: int) -> int:
    """How far a rank's clock was set ahead of rank 0's."""
    return (AHEAD_S[rank] - AHEAD_S[0]) * 10**9 if time_namespaces() else 0


def error_ms(own: IntArray, reference: IntArray, ranks: Sequence[Collectives]) -> float:
    """How far the alignment is from what the clocks were set to, at worst."""
    worst = 0.0
    for column, one in enumerate(ranks):
        there = own[:, column] != MISSING
        worst = max(
            worst,
            float(
                np.abs(reference[there, column] - (own[there, column] - ahead_ns(one.rank))).max()
            )
            / 1e6,
        )
    return worst


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--ranks", default="3,4")
    parser.add_argument("--mbit", type=float, default=200.0)
    parser.add_argument("--steps", type=int, default=90)
    parser.add_argument(
        "--keep", type=Path, help="recordings that are there already are used again"
    )
    parser.add_argument("--json", type=Path)
    args = parser.parse_args()
    netlab.PREFIX, netlab.SWITCH = "fs", "fssw"  # beside another laboratory
    results, bounds = [], []
    for ranks in map(int, args.ranks.split(",")):
        with tempfile.TemporaryDirectory() as name:
            folder = (args.keep or Path(name)) / f"{ranks}-ranks"
            if not (folder / "truth.json").exists():
                folder.mkdir(parents=True, exist_ok=True)
                with netlab.lab(ranks, args.mbit) as net:
                    record(net, folder, ranks, args.steps)
            recorded = read(folder / "run")
            truth = Truth(**json.loads((folder / "truth.json").read_text()))
        for clocks, seen in (("measured", recorded), ("passive", without_clocks(recorded))):
            held, bound, error = hold(seen, clocks, truth)
            results += held
            bounds.append((ranks, clocks, bound, error))
    head = [
        "ranks",
        "clocks",
        "late ms",
        "steps",
        "transfer",
        "true",
        "culprit",
        "last",
        "phase",
        "waited",
        "step",
        "replayed",
        "even link",
        "cost",
        "true",
    ]
    print(table([head, *(line(one) for one in results)]))
    print(
        table(
            [
                ["ranks", "clocks", "bound ms", "true error ms"],
                *([str(n), how, f"{b:.3f}", f"{e:.3f}"] for n, how, b, e in bounds),
            ]
        )
    )
    write_json(args.json, held=[asdict(one) for one in results], clocks=bounds)


def line(one: Held) -> list[str]:
    """A row of the table."""
    share = [f"{100 * part:.0f} %" for part in (one.culprit_right, one.last_right, one.phase_right)]
    times = [
        f"{value:.1f}"
        for value in (one.waited, one.step, one.replayed, one.even, one.cost, one.cost_true)
    ]
    return [
        str(one.ranks),
        one.clocks,
        f"{one.delay:.0f}",
        str(one.steps),
        f"{one.transfer:.1f}",
        f"{one.transfer_true:.1f}",
        *share,
        *times,
    ]


if __name__ == "__main__":
    main()
