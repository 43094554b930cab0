"""What a batch costs the main process on its way from a worker, by the number of its tensors and their bytes: a worker that is far ahead.

    python benchmarks/queue_cost.py [--batches 200] [--json queue_cost.json]

The main process sleeps between batches, so that the next one is always ready, and then takes it: ``next(loader)`` by the clock and in CPU
seconds of the main thread. What the first touch of the batch's pages costs is beside it. Straight lines through the batches of 4 kB give
the cost per batch and per tensor. analysis/ledger/view/handover.py has its constants from here. Prints Markdown.
"""

import argparse
import statistics
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
from torch.utils.data import DataLoader, Dataset, default_collate
from twins import machine, table, write_json

TENSORS, SMALL, LARGE = (1, 2, 4, 8, 16), 4096, (600_000, 4_800_000, 19_000_000)
AHEAD_S, PAGE_FLOATS = 4e-3, 1024
Line = tuple[float, float]


class Ones(Dataset[Any]):
    def __init__(self, number: int, tensors: int, nbytes: int) -> None:
        self.number, self.sample = number, [torch.ones(nbytes // 4) for _ in range(tensors)]

    def __len__(self) -> int:
        return self.number

    def __getitem__(self, index: int) -> Any:
        return self.sample


@dataclass(frozen=True)
class Received:
    """Medians over batches, ms."""

    tensors: int
    nbytes: int
    wall_ms: float
    cpu_ms: float
    touch_ms: float


def receive(tensors: int, nbytes: int, batches: int) -> Received:
    loader: DataLoader[Any] = DataLoader(
        Ones(batches, tensors, nbytes), 1, num_workers=1, collate_fn=default_collate
    )
    walls, cpus, touches = [], [], []
    batch_of = iter(loader)
    while True:
        time.sleep(AHEAD_S * max(1.0, nbytes * tensors / 1e6))
        wall, cpu = time.perf_counter(), time.thread_time()
        try:
            batch = next(batch_of)
        except StopIteration:
            break
        walls.append(time.perf_counter() - wall)
        cpus.append(time.thread_time() - cpu)
        begin = time.perf_counter()
        for tensor in batch:
            tensor.view(-1)[::PAGE_FLOATS].sum()
        touches.append(time.perf_counter() - begin)
        del batch
    return Received(
        tensors, nbytes, *(statistics.median(times[1:]) * 1e3 for times in (walls, cpus, touches))
    )


def line(found: Sequence[Received], what: str) -> Line:
    """(at no tensor, per tensor) by Theil and Sen: the median slope forgets a point that a neighbor
    disturbed.
    """
    points = [(float(one.tensors), float(getattr(one, what))) for one in found]
    slope = statistics.median(
        (b[1] - a[1]) / (b[0] - a[0]) for at, a in enumerate(points) for b in points[at + 1 :]
    )
    return statistics.median(y - slope * x for x, y in points), slope


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--batches", type=int, default=200)
    parser.add_argument("--json", type=Path)
    given = parser.parse_args()
    torch.set_num_threads(1)
    small = [receive(tensors, SMALL, given.batches) for tensors in TENSORS]
    large = [receive(2, nbytes, max(20, given.batches // 8)) for nbytes in LARGE]
    rows = [["tensors", "bytes each", "next() ms", "of it CPU", "first touch ms"]]
    rows += [
        [
            str(r.tensors),
            f"{r.nbytes:,}",
            f"{r.wall_ms:.2f}",
            f"{r.cpu_ms:.2f}",
            f"{r.touch_ms:.2f}",
        ]
        for r in small + large
    ]
    print(f"{machine()}\n\n{table(rows)}\n")
    for what in ("cpu_ms", "wall_ms"):
        print("{}: {:.2f} per batch and {:.2f} per tensor".format(what, *line(small, what)))
    print(
        "first touch: "
        + ", ".join(f"{r.touch_ms * 1e6 / (r.tensors * r.nbytes):.2f} ns per byte" for r in large)
    )
    write_json(given.json, received=[asdict(one) for one in small + large])


if __name__ == "__main__":
    main()
