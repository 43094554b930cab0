"""A training whose dataset, loop and threads have functions with names to look for.

train.py METHOD WAY: the start method of its workers, and what its samples do.
"""

import ctypes
import os
import signal
import sys
import threading

import torch
from torch.utils.data import DataLoader, Dataset

POLL_MS = 20


def planted_sum():
    total = 0
    for number in range(200_000):
        total += number
    return total


def polls_in_c():
    """A C library that does not expect to be interrupted."""
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.poll(None, 0, POLL_MS) != 0:
        raise OSError(ctypes.get_errno(), "poll was interrupted")


def recurses(depth):
    if depth:
        return recurses(depth - 1)
    return planted_sum()


def recurses_deeply():
    sys.setrecursionlimit(10_000)
    return recurses(4_900)


def forks():
    child = os.fork()
    if not child:
        planted_sum()
        os._exit(0)
    os.waitpid(child, 0)


def in_a_thread():
    thread = threading.Thread(target=planted_sum, name="of the dataset")
    thread.start()
    thread.join()


WAYS = {
    "sum": planted_sum,
    "poll": polls_in_c,
    "deep": recurses_deeply,
    "fork": forks,
    "thread": in_a_thread,
}


class Samples(Dataset):
    def __init__(self, way):
        self.way = way

    def __len__(self):
        return 96

    def __getitem__(self, index):
        WAYS[self.way]()
        return torch.ones(3)


def main(method, way):
    if way == "poll":
        for number in range(signal.SIGRTMIN, signal.SIGRTMAX + 1):  # it has a use for all of them
            signal.signal(number, lambda number, _: sys.exit(f"signal {number}"))
    torch.manual_seed(0)
    model = torch.nn.Linear(3, 1)
    optimizer = torch.optim.SGD(model.parameters(), 0.01)
    workers = {"num_workers": 2, "multiprocessing_context": method} if method != "none" else {}
    for batch in DataLoader(Samples(way), 8, **workers):
        for _ in range(4 * (way == "poll")):  # long enough for a helper that starts late
            polls_in_c()
        model(batch).sum().backward()
        optimizer.step()
    print(model.weight.detach().numpy().tobytes().hex())


if __name__ == "__main__":
    main(*sys.argv[1:])
