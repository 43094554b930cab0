"""256 ranks of 1,000 steps with 60 collectives each: what ``feedline report --by-rank`` takes, and whether a Dask cluster finds the same.

    python benchmarks/many_ranks.py [--ranks 256] [--keep FOLDER] [--json many_ranks.json]

The run folders are written by feedline's own recorder with made-up times (programs/synthetic_run.py), so that it is known who was late and
how much the others waited. Memory is the sum of the resident sets of all processes of the command, sampled; what they share counts in each.
"""

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path

from programs.synthetic_run import LATE, Plan, write_rank
from twins import table, write_json

from feedline.profiler.store.layout import SEGMENTS, TOTALS

LIMIT_S, LIMIT_BYTES = 60.0, 2e9
DISTRIBUTED_WORKERS = 2
PAGE, TICK = os.sysconf("SC_PAGE_SIZE"), os.sysconf("SC_CLK_TCK")


@dataclass(frozen=True)
class Taken:
    """One run of the command."""

    name: str
    wall_s: float
    cpu_s: float
    peak_bytes: int
    result: dict[str, object]


def write(path: Path, plan: Plan) -> None:
    """All ranks, on all CPUs; those that are there already, and whole, are kept."""
    with ProcessPoolExecutor() as pool:
        folders = {rank: path / f"rank{rank}" for rank in range(plan.ranks)}
        todo = [
            rank
            for rank, one in folders.items()
            if not (one / TOTALS).exists() or (one / SEGMENTS).exists()
        ]
        for rank in todo:
            shutil.rmtree(folders[rank], ignore_errors=True)
        list(pool.map(write_rank, [path] * len(todo), [plan] * len(todo), todo))


def tree(pid: int) -> Iterator[tuple[int, float, int]]:
    """(pid, CPU seconds, resident bytes) of a process and of all its children."""
    with suppress(OSError, ValueError, IndexError):
        fields = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
        yield pid, (int(fields[11]) + int(fields[12])) / TICK, int(fields[21]) * PAGE
        for children in Path(f"/proc/{pid}/task").glob("*/children"):
            for child in children.read_text().split():
                yield from tree(int(child))


def reduce(name: str, run: Path, options: list[str], folder: Path) -> Taken:
    """``feedline report --by-rank``, watched."""
    out = folder / f"{name}.json"
    command = [
        sys.executable,
        "-m",
        "feedline",
        "report",
        "--by-rank",
        str(run),
        "-q",
        "-f",
        "--json",
        str(out),
        *options,
    ]
    begun = time.perf_counter()
    process = subprocess.Popen(command, cwd=folder)
    peak = 0
    cpu: dict[int, float] = {}

    def watch() -> None:
        nonlocal peak
        while process.poll() is None:
            now = list(tree(process.pid))
            cpu.update({pid: spent for pid, spent, _ in now})
            peak = max(peak, sum(size for _, _, size in now))
            time.sleep(0.2)

    watcher = threading.Thread(target=watch)
    watcher.start()
    process.wait()
    wall = time.perf_counter() - begun
    watcher.join()
    if process.returncode:
        raise SystemExit(f"feedline report --by-rank ended with exit code {process.returncode}")
    return Taken(name, wall, sum(cpu.values()), peak, json.loads(out.read_text()))


def truth(plan: Plan) -> dict[int, float]:
    """Rank -> seconds that all others waited for it, per step that counts."""
    counted = range(2, plan.steps)
    late = [plan.late_rank(step) for step in counted]
    return {
        rank: late.count(rank) / len(late) * LATE / 1e9 * (plan.ranks - 1) for rank in set(late)
    }


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--ranks", type=int, default=256)
    parser.add_argument("--steps", type=int, default=1000)
    parser.add_argument("--collectives", type=int, default=60)
    parser.add_argument("--keep", type=Path, help="folder for the run, kept for the next time")
    parser.add_argument("--no-dask", action="store_true")
    parser.add_argument("--json", type=Path)
    args = parser.parse_args()
    plan = Plan(args.ranks, args.steps, args.collectives)
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        run = (args.keep or folder).resolve() / "run"
        write(run, plan)
        found = [reduce("local", run, [], folder)]
        if not args.no_dask:
            from distributed import LocalCluster

            with LocalCluster(
                n_workers=DISTRIBUTED_WORKERS, threads_per_worker=1, dashboard_address=None
            ) as cluster:
                found.append(reduce("dask", run, ["--dask", cluster.scheduler_address], folder))
    expected = truth(plan)
    ranks = {rank["rank"]: rank for rank in found[0].result["ranks"]}  # type: ignore[attr-defined]
    worst = max(abs(ranks[rank]["caused_s"] - seconds) for rank, seconds in expected.items()) / max(
        expected.values()
    )
    rows = [["", "wall s", "CPU s", "peak MB"]]
    rows += [
        [one.name, f"{one.wall_s:.1f}", f"{one.cpu_s:.1f}", f"{one.peak_bytes / 1e6:.0f}"]
        for one in found
    ]
    print(table(rows))
    print(
        f"\n{plan.ranks * plan.steps * plan.collectives:,} collectives; limits {LIMIT_S:.0f} s "
        f"and {LIMIT_BYTES / 1e6:.0f} MB: ",
        end="",
    )
    print("kept" if found[0].wall_s <= LIMIT_S and found[0].peak_bytes <= LIMIT_BYTES else "BROKEN")
    print(
        f"waiting caused by each rank against the truth: largest error {100 * worst:.2f} % of the "
        f"largest"
    )
    if len(found) > 1:
        print(
            f"the cluster's result is "
            f"{'the same, digit by digit' if found[0].result == found[1].result else 'DIFFERENT'}"
        )
    write_json(
        args.json,
        plan=asdict(plan),
        taken=[asdict(one) | {"result": None} for one in found],
        worst_error=worst,
    )


if __name__ == "__main__":
    main()
