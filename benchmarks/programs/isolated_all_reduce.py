"""Two or more ranks that sum messages and do nothing else. Started by busbw_truth.py, with and
without feedline.

RANK=0 WORLD_SIZE=2 python benchmarks/programs/isolated_all_reduce.py --mib 1,25 --seconds 2 --store
/tmp/store --report out.json
"""

import argparse
import json
import os
import time
from pathlib import Path

import torch
import torch.distributed as dist

STEPS = 12  # so many loops of each size


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--mib", default="1,25")
    parser.add_argument("--seconds", type=float, default=2.0, help="of each size")
    parser.add_argument(
        "--gap-us",
        type=float,
        default=0.0,
        help="of other work before each call, which is not counted",
    )
    parser.add_argument("--store", type=Path, required=True)
    parser.add_argument("--report", type=Path, required=True)
    args = parser.parse_args()
    rank, ranks = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{args.store}", rank=rank, world_size=ranks)
    optimizer = torch.optim.SGD(
        [torch.zeros(1, requires_grad=True)]
    )  # its updates are the steps that feedline counts
    rates = {}
    for size in [int(mib) << 20 for mib in args.mib.split(",")]:
        message = torch.zeros(size // 4)
        took = torch.tensor([min(seconds_of(message, 3, args.gap_us) for _ in range(3))])
        dist.all_reduce(took, dist.ReduceOp.MAX)
        calls = max(1, int(args.seconds / (float(took) * STEPS)))
        wall = 0.0
        for _ in range(STEPS):
            dist.barrier()
            wall += calls * seconds_of(message, calls, args.gap_us)
            optimizer.step()
        slowest = torch.tensor([wall])
        dist.all_reduce(slowest, dist.ReduceOp.MAX)
        rates[size] = STEPS * calls * size / float(slowest) * 2 * (ranks - 1) / ranks
    if rank == 0:
        args.report.write_text(json.dumps(rates))
    dist.barrier()  # nobody leaves while another still reads
    dist.destroy_process_group()


def seconds_of(message: torch.Tensor, calls: int, gap_us: float) -> float:
    """Of one call, in the mean."""
    other, start = 0.0, time.perf_counter()
    for _ in range(calls):
        if gap_us:
            other += spend(gap_us / 1e6)
        dist.all_reduce(message)
    return (time.perf_counter() - start - other) / calls


def spend(seconds: float) -> float:
    """Keep this core busy; how long it truly was."""
    begun = time.perf_counter()
    while time.perf_counter() - begun < seconds:
        pass
    return time.perf_counter() - begun


if __name__ == "__main__":
    main()
