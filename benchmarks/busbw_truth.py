"""Is the bus bandwidth of the probe, and that which the tap sees of isolated all-reduces, that of a bare loop?

    python benchmarks/busbw_truth.py [--rounds 7] [--ranks 2] [--json busbw_truth.json]

In turns: a bare loop of ``dist.all_reduce`` over gloo, the probe of ``feedline probe``, and the same loop under ``feedline run``, whose
report has the tap's figure. All in processes of their own on this machine; ratios are within a round. Two processes on few cores fall
into a fast or a slow rhythm, by luck and for a whole run; so what the loop under ``feedline run`` says of itself is compared as well. And
"gap" is a bare loop that does something else before each call, for as long as the tap takes: that alone makes small messages slower.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

from twins import Estimate, in_turns, machine, table, wait_for_quiet, write_json

from feedline.pipelines.probes.all_reduce import _measure_all_reduce
from feedline.pipelines.probes.probe_rounds import ProbePlan

Rates = dict[int, float]  # bytes per message -> bus bandwidth, bytes/s

PROGRAM = Path(__file__).resolve().parent / "programs" / "isolated_all_reduce.py"
SIZES = (1 << 20, 25 << 20)
SECONDS = 2.0
GOAL = 0.05
GAP_US = 70.0  # what the tap takes of the calling thread (collective_tap.py)
HOWS = ("bare", "probe", "tap", "gap")
RATIOS = (("probe", "bare"), ("tap", "probe"), ("tap", "its loop"), ("gap", "bare"))
GOALS = RATIOS[:3]


def launch(ranks: int, folder: Path, before: list[str], after: list[str]) -> None:
    """One process a rank, to their end."""
    command = [
        sys.executable,
        *before,
        str(PROGRAM),
        "--store",
        str(folder / "store"),
        "--seconds",
        str(SECONDS),
        *after,
    ]
    place = {"WORLD_SIZE": str(ranks), "GLOO_SOCKET_IFNAME": "lo", "OMP_NUM_THREADS": "1"}
    started = [
        subprocess.Popen(
            command,
            env={**os.environ, **place, "RANK": str(rank), "LOCAL_RANK": str(rank)},
            stdout=subprocess.DEVNULL,
        )
        for rank in range(ranks)
    ]
    codes = [process.wait(120) for process in started]
    if any(codes):
        sys.exit(f"{' '.join(command)} failed")


def measure(how: str, ranks: int) -> dict[str, Rates]:
    """One of HOWS; with the tap's comes that of the loop it watched."""
    if how == "probe":
        found = _measure_all_reduce(
            "gloo", ranks, list(SIZES), ProbePlan(rounds=3, seconds=SECONDS / 3)
        )
        return {how: {size: one.value * 2 * (ranks - 1) / ranks for size, one in found.items()}}
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        out = folder / "out.json"
        before = ["-m", "feedline", "run", "-q", "-o", str(folder / "run")] if how == "tap" else []
        launch(
            ranks,
            folder,
            before,
            ["--report", str(out), "--gap-us", str(GAP_US if how == "gap" else 0.0)],
        )
        loop = {int(size): rate for size, rate in json.loads(out.read_text()).items()}
        if how != "tap":
            return {how: loop}
        report = ["report", "-q", str(folder / "run"), "--json", str(folder / "r.json")]
        subprocess.run([sys.executable, "-m", "feedline", *report], check=True)
        kinds = json.loads((folder / "r.json").read_text())["comm"]["collectives"]
        seen = {
            one["bytes"]: one["busbw_gbps"] * 1e9
            for one in kinds
            if one["name"] == "all_reduce" and one["bytes"] in SIZES
        }
        return {how: seen, "its loop": loop}


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--ranks", type=int, default=2)
    parser.add_argument("--json", type=Path)
    args = parser.parse_args()
    load = wait_for_quiet(1.0, 60.0)
    turns = in_turns(HOWS, lambda how: measure(how, args.ranks), args.rounds)
    rounds = [{how: rates for one in turn.values() for how, rates in one.items()} for turn in turns]
    columns = [*HOWS, "its loop"]
    rows = [
        ["message", *(f"{how}, GB/s" for how in columns), *(" / ".join(pair) for pair in RATIOS)]
    ]
    for size in SIZES:
        medians = [statistics.median(one[how][size] for one in rounds) / 1e9 for how in columns]
        ratios = [Estimate.of([one[a][size] / one[b][size] for one in rounds]) for a, b in RATIOS]
        rows.append(
            [
                f"{size >> 20} MiB",
                *(f"{value:.2f}" for value in medians),
                *(ratio.text() for ratio in ratios),
            ]
        )
        for pair, ratio in zip(GOALS, ratios, strict=False):
            print(
                f"{size >> 20} MiB, {' / '.join(pair)}: "
                f"{'within' if abs(ratio.median - 1) <= GOAL else 'NOT within'} {GOAL:.0%}"
            )
    print(table(rows))
    write_json(args.json, load=load, machine=machine(), ranks=args.ranks, rounds=rounds)


if __name__ == "__main__":
    main()
