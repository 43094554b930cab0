"""torch.multiprocessing trains one network in shared memory from several processes (Hogwild), one
after the other.
"""

import torch
import torch.multiprocessing as mp
from tiny import digest, network, train


def work(rank, net):
    torch.manual_seed(rank)
    train(net)


if __name__ == "__main__":
    net = network().share_memory()
    for method in ("fork", "spawn"):
        for _ in range(2):
            mp.start_processes(work, (net,), nprocs=1, start_method=method)
    digest(train(net))
