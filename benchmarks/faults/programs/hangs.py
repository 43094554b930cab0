"""A perceptron whose training stands still after some steps, and is interrupted as by Ctrl-C.

hangs.py lock|queue [--free]
"""

import os
import queue
import signal
import threading

import torch
from torch import nn
from torch.nn.functional import cross_entropy
from torch.utils.data import Dataset
from training import Timers, loader, options

WIDTH = 256
LOCK = threading.Lock()


class Rows(Dataset):
    """Rows that are made under a lock, as if all of them came from one file."""

    def __init__(self, count):
        self.count = count

    def __len__(self):
        return self.count

    def __getitem__(self, index):
        with LOCK:
            return torch.full((WIDTH,), float(index % 7)), index % 10


def filled(given):
    """Return a queue that a thread fills with batches; without ``--free``, it ends too early."""
    batches = queue.Queue(4)

    def fill():
        for _ in range(given.steps if given.free else given.steps * 2 // 3):
            batches.put((torch.randn(given.batch, WIDTH), torch.randint(10, (given.batch,))))

    threading.Thread(target=fill, daemon=True).start()
    return batches


def passes(given):
    """Yield the batches of two passes over a loader; before the second, the program takes a lock."""
    rows = Rows(given.batch * given.steps // 2)
    yield from loader(rows, given)
    if not given.free:
        LOCK.acquire()
    yield from loader(rows, given)


def main():
    parser = options(__doc__)
    parser.add_argument("kind", choices=("lock", "queue"))
    parser.add_argument("--free", action="store_true", help="it goes on")
    parser.add_argument("--interrupt-s", type=float, default=20.0)
    given = parser.parse_args()
    interrupt = threading.Timer(given.interrupt_s, os.kill, (os.getpid(), signal.SIGINT))
    interrupt.daemon = True
    interrupt.start()
    model = nn.Sequential(nn.Linear(WIDTH, 256), nn.ReLU(), nn.Linear(256, 10))
    optimizer = torch.optim.SGD(model.parameters(), 1e-3)
    timers, of_queue = Timers(), filled(given) if given.kind == "queue" else None
    batches = (of_queue.get() for _ in range(given.steps)) if of_queue else passes(given)
    for rows, labels in timers.over(batches):
        optimizer.zero_grad()
        cross_entropy(model(rows), labels).backward()
        optimizer.step()
    interrupt.cancel()
    timers.write(given.batch)


if __name__ == "__main__":
    torch.set_num_threads(1)
    main()
