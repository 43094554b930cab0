"""What the tap adds to a collective and to other operators, in microseconds of CPU time of the whole process, callbacks included.

    python benchmarks/collective_tap.py --json out.json

Two gloo ranks on this machine, or one. Loops of small all-reduces with the tap attached and detached take turns in the same processes; so
do loops of additions, which must cost the same. A third row has the kernel and nothing in it: what torch takes to call Python at all.
"""

import argparse
import json
import os
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path

import torch
import torch.distributed as dist
from twins import Estimate, in_turns, machine, table, write_json

from feedline.profiler.record.recorder import recorder
from feedline.profiler.store.segment import Segment
from feedline.profiler.taps.collectives.tap import _DISPATCH_KEY, CollectiveTap, _collective_kernels

LIMIT_US = 60.0
HOWS = ("without", "empty kernel", "tap")


@contextmanager
def empty_kernel() -> Iterator[None]:
    """Python between the caller and gloo, and no more."""
    library, key = (
        torch.library.Library("c10d", "IMPL"),
        torch._C._parse_dispatch_key(_DISPATCH_KEY),
    )
    below, op = torch._C._dispatch_keyset_full_after(key), torch.ops.c10d.allreduce_.default
    library.impl(
        op,
        lambda keyset, *args: op.redispatch(keyset & below, *args),
        _DISPATCH_KEY,
        with_keyset=True,
    )
    yield
    library._destroy()


@contextmanager
def tapped() -> Iterator[None]:
    """Everything that a recording does to a collective."""
    with tempfile.TemporaryDirectory() as folder:
        recorder.open_main(Segment(Path(folder) / "main.seg", {"role": "main"}))
        tap = CollectiveTap(lambda *_: None)
        tap.attach()
        yield
        tap.ends.drain()
        tap.stop()
        recorder.close()
        # a recording leaves them: here no other thread communicates, and the next row is without
        _collective_kernels._module.reset()
        _collective_kernels._module = None


@contextmanager
def without() -> Iterator[None]:
    yield


def cpu_us(count: int, call: Callable[[], object]) -> tuple[float, float]:
    """CPU microseconds a call, of all threads and of this one: gloo's own wakes more or less often,
    whatever this one does.
    """
    all_threads, this_thread = time.process_time_ns(), time.thread_time_ns()
    for _ in range(count):
        call()
    return (time.process_time_ns() - all_threads) / 1e3 / count, (
        time.thread_time_ns() - this_thread
    ) / 1e3 / count


def rank(rounds: int, count: int) -> dict[str, list[float]]:
    """What one rank measured: differences to "without", pair by pair."""
    small, makers = (
        torch.ones(256),
        {"without": without, "empty kernel": empty_kernel, "tap": tapped},
    )

    def measure(how: str) -> tuple[float, float, float]:
        with makers[how]():
            for _ in range(20):
                dist.all_reduce(small)
            return *cpu_us(count, lambda: dist.all_reduce(small)), cpu_us(
                count * 10, lambda: torch.add(small, 1)
            )[1]

    rows: dict[str, list[float]] = {"an all_reduce alone": []}
    for found in in_turns(HOWS, measure, rounds):
        all_threads, this_thread, addition = found["without"]
        rows["an all_reduce alone"].append(all_threads)
        for how in HOWS[1:]:
            rows.setdefault(f"{how}: added to an all_reduce", []).append(
                found[how][0] - all_threads
            )
            rows.setdefault(f"{how}: in the calling thread", []).append(found[how][1] - this_thread)
        rows.setdefault("tap: added to torch.add", []).append(found["tap"][2] - addition)
    return rows


def together(ranks: int, rounds: int, count: int) -> dict[str, list[float]]:
    """Start the ranks; returns rank 0's figures."""
    with socket.socket() as listening:
        listening.bind(("localhost", 0))
        port = listening.getsockname()[1]
    place = {
        "WORLD_SIZE": ranks,
        "MASTER_ADDR": "localhost",
        "MASTER_PORT": port,
        "OMP_NUM_THREADS": 1,
    }
    processes = []
    for number in range(ranks):
        environment = {
            **os.environ,
            **{name: str(value) for name, value in {**place, "RANK": number}.items()},
        }
        command = [
            sys.executable,
            __file__,
            "--rank",
            "--rounds",
            str(rounds),
            "--count",
            str(count),
        ]
        processes.append(
            subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True)
        )
    outputs = [process.communicate()[0] for process in processes]
    found: dict[str, list[float]] = json.loads(outputs[0])
    return found


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rounds", type=int, default=20, help="of loops in turns")
    parser.add_argument(
        "--ranks", type=int, default=2, help="one waits for nobody, so that its figures are sharper"
    )
    parser.add_argument("--count", type=int, default=500, help="collectives in a loop")
    parser.add_argument("--json", type=Path)
    parser.add_argument("--rank", action="store_true", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.rank:
        torch.set_num_threads(1)
        dist.init_process_group("gloo")
        print(json.dumps(rank(args.rounds, args.count)))
        dist.destroy_process_group()
        return
    found = {
        name: (Estimate.of(values), values)
        for name, values in together(args.ranks, args.rounds, args.count).items()
    }
    rows = [["microseconds of CPU", "median [95 %]", "pairs"]]
    rows += [[name, estimate.text(), str(estimate.pairs)] for name, (estimate, _) in found.items()]
    print(f"{machine()}\nlimit: {LIMIT_US:.0f} us added to an all_reduce\n\n{table(rows)}")
    write_json(
        args.json,
        limit_us=LIMIT_US,
        rows={
            name: {**asdict(estimate), "values": values}
            for name, (estimate, values) in found.items()
        },
    )


if __name__ == "__main__":
    main()
