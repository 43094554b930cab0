"""One of two tasks of srun."""

import os

import counted
import torch.distributed as dist

if __name__ == "__main__":
    rank, world = int(os.environ["SLURM_PROCID"]), int(os.environ["SLURM_NTASKS"])
    dist.init_process_group("gloo", rank=rank, world_size=world)
    counted.train_rank("group", rank, world)
