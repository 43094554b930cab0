"""Two gloo ranks: rank 0 destroys its group with a collective in flight, to which rank 1 comes
later; a model holds the group still.
"""

import json
import sys
import time

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

LATE_S = 3.0

if __name__ == "__main__":
    dist.init_process_group("gloo")
    model = DistributedDataParallel(nn.Linear(4, 2))
    many = torch.ones(1 << 20)
    dist.barrier()
    took = None
    if dist.get_rank() == 0:
        work = dist.all_reduce(many, async_op=True)
        begun = time.perf_counter()
        dist.destroy_process_group()
        took = time.perf_counter() - begun
        work.wait()
    else:
        time.sleep(LATE_S)
        dist.all_reduce(many)
    with open(sys.argv[1], "w") as file:
        json.dump({"destroy_s": took, "sum": float(many[0])}, file)
    time.sleep(0.5)  # gloo's thread has let go of the last work
