"""A perceptron in a program that keeps much: Python objects that collections look at, graphs of past
steps, or what its workers read.

kept.py --objects 500000 --records 4000 [--disabled]
"""

import gc
import time

import numpy as np
import torch
from torch import nn
from torch.nn.functional import cross_entropy
from torch.utils.data import Dataset
from training import Timers, loader, options

WIDTH = 1024


class Rows(Dataset):
    """Made from a list that holds an object for each row, or nothing but their number."""

    def __init__(self, given):
        self.count = given.batch * given.steps
        self.read = [[number, str(number)] for number in range(given.listed)]
        self.stored, self.table = [], None
        self.given = given

    def __len__(self):
        return self.count

    def __getitem__(self, index):
        if self.given.worker_keeps:
            self.stored.append(torch.ones(self.given.worker_keeps << 10, dtype=torch.uint8))
        if self.given.table_mb and self.table is None:
            self.table = table(self.given.table_mb)
        if self.given.huge_mb and index == self.count // 2:
            table(self.given.huge_mb)
        for number in range(64 if self.read else 0):  # each look writes to the object's counter
            self.read[(index * 64 + number) % len(self.read)][0]
        return torch.full((WIDTH,), float(index % 7)), index % 10


def table(mb):
    """So many megabytes of numbers, 16 at a time."""
    dice = np.random.default_rng(0)
    return [dice.normal(size=1 << 21) for _ in range(mb >> 4)]


def arguments():
    parser = options(__doc__)
    parser.add_argument("--objects", type=int, default=0, help="made before training, and kept")
    parser.add_argument(
        "--records", type=int, default=0, help="made in each step, and kept for three"
    )
    parser.add_argument("--disabled", action="store_true", help="gc.disable() before training")
    parser.add_argument("--collect", action="store_true", help="gc.collect() in each step")
    parser.add_argument(
        "--keep", choices=("", "loss", "sum", "number", "buffer"), default="", help="of each step"
    )
    parser.add_argument("--listed", type=int, default=0, help="objects that workers look at")
    parser.add_argument("--worker-keeps", type=int, default=0, help="kB of each sample")
    parser.add_argument(
        "--table-mb", type=int, default=0, help="that each worker reads for itself at first"
    )
    parser.add_argument("--huge-mb", type=int, default=0, help="that one sample takes")
    return parser.parse_args()


def main():
    given = arguments()
    heap = [[number] for number in range(given.objects)]
    if given.disabled:
        gc.disable()
    batches = loader(Rows(given), given)
    model = nn.Sequential(nn.Linear(WIDTH, 512), nn.ReLU(), nn.Linear(512, 10))
    if given.step_ms:
        model.register_forward_hook(lambda *_: time.sleep(given.step_ms / 1e3))
    optimizer, timers = torch.optim.SGD(model.parameters(), 0.01), Timers()
    records, losses, buffers, total = [], [], [], 0.0
    for _ in range(given.epochs):
        for rows, labels in timers.over(batches):
            loss = cross_entropy(model(rows), labels)
            optimizer.zero_grad()
            loss.backward(retain_graph=given.keep in ("loss", "sum"))
            optimizer.step()
            records = [*records[-2:], [[number] for number in range(given.records)]]
            if given.keep == "loss":
                losses.append(loss)
            elif given.keep == "sum":
                total = total + loss
            elif given.keep == "number":
                losses.append(loss.item())
            elif given.keep == "buffer":
                buffers.append(torch.ones(1 << 18))
            if given.collect:
                gc.collect()
    timers.write(given.batch)
    del heap


if __name__ == "__main__":
    torch.set_num_threads(1)
    main()
