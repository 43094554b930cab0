"""How long does a training wait for memory when it drops a batch that a worker made, and what does it cost to make it shared?

    python benchmarks/freeing.py [--mb 37.7] [--batches 100]

Batches of uint8 are collated into shared memory by two workers, and dropped one by one before the next is asked for. Prints the median
time of taking a batch, of dropping it, and the latter per MB; and the CPU time of collating into shared memory, beyond private memory.
With --mb 0.001, what remains is the cost of a tensor, whatever its size.
"""

import argparse
import statistics
import time

import torch
from torch.utils.data import DataLoader, Dataset

BATCH = 64


class Rows(Dataset[torch.Tensor]):
    """The same row again and again."""

    def __init__(self, nbytes: int, count: int) -> None:
        self.row, self.count = torch.ones(nbytes, dtype=torch.uint8), count

    def __len__(self) -> int:
        return self.count

    def __getitem__(self, index: int) -> torch.Tensor:
        return self.row


def sharing_s(nbytes: int, times: int = 200) -> float:
    """CPU seconds of making a tensor of this size in new shared memory, beyond private memory."""
    took = []
    for shared in (True, False):
        begun = time.thread_time()
        for _ in range(times):
            storage = (
                torch.UntypedStorage._new_shared(nbytes) if shared else torch.UntypedStorage(nbytes)
            )
            torch.empty(0, dtype=torch.uint8).set_(storage, 0, (nbytes,)).fill_(1)
            del storage
        took.append((time.thread_time() - begun) / times)
    return took[0] - took[1]


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--mb", type=float, default=37.7, help="size of a batch")
    parser.add_argument("--batches", type=int, default=100)
    given = parser.parse_args()
    loader = DataLoader(
        Rows(int(given.mb * 1e6 / BATCH), BATCH * given.batches), BATCH, num_workers=2
    )
    took, dropped = [], []
    batches = iter(loader)
    for _ in range(given.batches):
        begun = time.perf_counter()
        batch = next(batches)
        got = time.perf_counter()
        batch.sum()  # as a training, it touches all of it
        used = time.perf_counter()
        del batch
        dropped.append(time.perf_counter() - used)
        took.append(got - begun)
    take_ms, drop_ms = (statistics.median(seconds) * 1e3 for seconds in (took, dropped))
    print(
        f"taking a batch: {take_ms:.2f} ms; dropping it: {drop_ms:.2f} ms, "
        f"{drop_ms / given.mb:.3f} ms per MB"
    )
    print(
        f"making a tensor of that size in shared memory: "
        f"{sharing_s(int(given.mb * 1e6)) * 1e6:.0f} us of CPU time more than in its own"
    )


if __name__ == "__main__":
    main()
