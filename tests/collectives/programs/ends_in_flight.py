"""Two gloo ranks: rank 1 leaves (returns, raises) with collectives in flight, to which rank 0 comes
later.
"""

import sys
import time

import torch
import torch.distributed as dist

if __name__ == "__main__":
    dist.init_process_group("gloo")
    dist.barrier()
    many = torch.ones(1 << 20)
    if dist.get_rank() == 0:
        time.sleep(0.3)
        for _ in range(4):
            dist.all_reduce(many)
    else:
        in_flight = [dist.all_reduce(many, async_op=True) for _ in range(4)]
        if sys.argv[2] == "raises":
            raise ValueError("with collectives in flight")
