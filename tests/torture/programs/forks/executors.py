"""ProcessPoolExecutor and Pool train in their children; one child dies, and the pool says so."""

import os
import sys
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from multiprocessing import get_context

import torch
from tiny import digest, network, train


def work(seed):
    torch.manual_seed(seed)
    return sum(p.sum().item() for p in train(network()).parameters())


if __name__ == "__main__":
    context = get_context(sys.argv[1])
    with ProcessPoolExecutor(1, context) as pool:
        print(list(pool.map(work, range(3))))
        try:
            pool.submit(os._exit, 1).result()
        except BrokenProcessPool:
            print("broken")
    if sys.argv[1] == "fork":
        with context.Pool(2, maxtasksperchild=1) as pool:
            print(pool.map(work, range(3)))
    digest(train())
