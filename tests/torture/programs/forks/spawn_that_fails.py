"""torch.multiprocessing.spawn: a child raises, and its traceback comes back in the exception."""

import torch.multiprocessing as mp
from tiny import digest, train


def work(rank):
    train()
    raise ValueError(f"rank {rank} lost")


if __name__ == "__main__":
    try:
        mp.spawn(work, nprocs=1)
    except mp.ProcessRaisedException as error:
        print("feedline" in str(error), str(error).splitlines()[-1])
    digest(train())
