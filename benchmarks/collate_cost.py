"""What a batch costs its worker that a collate function of the program's own stacks in ordinary memory, and one that torch's stacks.

    python benchmarks/collate_cost.py [--rounds 3]

One worker stacks the same sample over and over; CPU time of the worker per batch, the two in turns. The first is copied into shared memory
once more. analysis/rules/input/custom_collate.py has its constants from here. Prints Markdown.
"""

import argparse
import resource
import subprocess
import sys
from functools import partial
from statistics import median
from typing import Any

import torch
from torch.utils.data import DataLoader, Dataset
from twins import in_turns, table

SAMPLES, BATCHES, SIZES = 64, 60, (40_000, 160_000, 600_000)


class Same(Dataset[Any]):
    def __init__(self, nbytes: int) -> None:
        self.sample = torch.ones(nbytes // 4)

    def __len__(self) -> int:
        return SAMPLES * BATCHES

    def __getitem__(self, index: int) -> torch.Tensor:
        return self.sample


def stacked(samples: list[torch.Tensor]) -> torch.Tensor:
    return torch.stack(samples)


def worker_s(how: str, nbytes: int) -> float:
    """CPU seconds of the worker per batch, in this process, which has no other child."""
    for _ in DataLoader(
        Same(nbytes), SAMPLES, num_workers=1, collate_fn=stacked if how == "stacked" else None
    ):
        pass
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return (used.ru_utime + used.ru_stime) / BATCHES


def measure(nbytes: int, how: str) -> float:
    """The same in a new process."""
    done = subprocess.run(
        [sys.executable, __file__, "--one", how, str(nbytes)],
        capture_output=True,
        text=True,
        check=True,
    )
    return float(done.stdout)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--one", nargs=2, help=argparse.SUPPRESS)
    given = parser.parse_args()
    torch.set_num_threads(1)
    if given.one:
        print(worker_s(given.one[0], int(given.one[1])))
        return
    rows = [["batch", "stacked in ordinary memory", "by default_collate", "saved per byte"]]
    for nbytes in SIZES:
        rounds = list(in_turns(("stacked", "default"), partial(measure, nbytes), given.rounds))
        own, default = (median(one[how] for one in rounds) for how in ("stacked", "default"))
        whole = SAMPLES * nbytes
        rows.append(
            [
                f"{whole / 1e6:.1f} MB",
                f"{1e3 * own:.1f} ms",
                f"{1e3 * default:.1f} ms",
                f"{1e9 * (own - default) / whole:.2f} ns",
            ]
        )
    print(table(rows))


if __name__ == "__main__":
    main()
