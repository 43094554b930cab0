"""accelerate.debug_launcher forks two ranks, as its notebook_launcher does, and makes their group."""

import counted
import torch.distributed as dist
from accelerate import debug_launcher


def rank():
    counted.train_rank("group", dist.get_rank(), dist.get_world_size())


if __name__ == "__main__":
    debug_launcher(rank, num_processes=2)
