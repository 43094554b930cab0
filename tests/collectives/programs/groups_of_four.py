"""Four gloo ranks: two groups of two beside the whole; then rank 3 is killed after it began a
collective that the others come to late.
"""

import contextlib
import json
import os
import signal
import sys
import time

import torch
import torch.distributed as dist

SECTIONS: dict[str, tuple[int, int]] = {}


@contextlib.contextmanager
def section(name):
    dist.barrier()
    begin = time.perf_counter_ns()
    yield
    SECTIONS[name] = begin, time.perf_counter_ns()


if __name__ == "__main__":
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    pairs = [dist.new_group([0, 2]), dist.new_group([1, 3])]
    mine = pairs[rank % 2]
    with section("pairs"):
        for _ in range(3):
            dist.all_reduce(torch.ones(100), group=mine)
        dist.all_gather([torch.ones(100) for _ in range(2)], torch.ones(100), group=mine)
    with section("whole"):
        dist.all_reduce(torch.ones(100))
        dist.gather(
            torch.ones(100), [torch.ones(100) for _ in range(4)] if rank == 1 else None, dst=1
        )
        dist.scatter(
            torch.ones(100), [torch.ones(100) for _ in range(4)] if rank == 1 else None, src=1
        )
        dist._reduce_scatter_base(torch.ones(100), torch.ones(400))
    with section("ring"):
        work = [
            dist.isend(torch.ones(100), (rank + 1) % 4),
            dist.irecv(torch.ones(100), (rank - 1) % 4),
        ]
        for one in work:
            one.wait()
    dist.barrier()
    SECTIONS["killed"] = time.perf_counter_ns(), 1 << 62
    if rank == 3:
        with open(sys.argv[1], "w") as file:
            json.dump({"sections": SECTIONS}, file)
        work = dist.all_reduce(torch.ones(1000), async_op=True)
        time.sleep(0.2)
        os.kill(os.getpid(), signal.SIGKILL)
    time.sleep(0.5)
    failed = False
    try:
        dist.all_reduce(torch.ones(1000))
    except RuntimeError:
        failed = True
    with open(sys.argv[1], "w") as file:
        json.dump({"sections": SECTIONS, "failed": failed}, file)
