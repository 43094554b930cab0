"""Memory that comes back from swap is told as swap: real page faults, where the machine has a swap."""

import mmap
import os
import time
from pathlib import Path

import numpy as np
import pytest
import torch
from blocked.test_what_blocks import causes, trained
from torch.utils.data import DataLoader, Dataset

PAGEOUT = 21  # MADV_PAGEOUT of Linux 5.4: to swap, now
PAGES, OF_A_SAMPLE, SAMPLES = 16_384, 256, 512


def free_swap() -> int:
    """Bytes."""
    swaps = Path("/proc/swaps")
    rows = [row.split() for row in swaps.read_text().splitlines()[1:]] if swaps.exists() else []
    return sum(int(size) - int(used) for _, _, size, used, *_ in rows) * 1024


pytestmark = [
    pytest.mark.quiet,
    pytest.mark.skipif(
        free_swap() < 2 * PAGES * mmap.PAGESIZE, reason="this machine has no swap, or no room in it"
    ),
]


class InMemory(Dataset):
    """Each sample touches pages in an order that no readahead foresees; they are then moved to swap
    again, or not.
    """

    def __init__(self, swapped: bool) -> None:
        self.memory = mmap.mmap(-1, PAGES * mmap.PAGESIZE, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
        self.bytes = np.frombuffer(self.memory, np.uint8)
        self.bytes[:] = np.random.default_rng(0).integers(0, 256, len(self.bytes), np.uint8)
        order = np.random.default_rng(1).permutation(PAGES) * mmap.PAGESIZE
        self.places = np.resize(order, (SAMPLES, OF_A_SAMPLE))
        self.swapped = swapped
        self._move()
        os.sync()
        time.sleep(0.5)
        self._move()

    def _move(self) -> None:
        """What is written already is dropped; the rest is written."""
        if self.swapped:
            self.memory.madvise(PAGEOUT)

    def __len__(self) -> int:
        return SAMPLES

    def __getitem__(self, index: int) -> torch.Tensor:
        total = int(self.bytes[self.places[index]].sum())
        if index % 8 == 7:
            self._move()
        return torch.full((16,), float(total))


def test_samples_whose_memory_is_in_swap_are_told_to_wait_for_it(tmp_path):
    report = trained(tmp_path, DataLoader(InMemory(swapped=True), 8))

    first = next(rule_id for rule_id in causes(report) if rule_id != "busy_neighbors")
    assert first == "swapping", report.verdict
    assert not {"cold_storage", "slow_for_its_bytes"} & set(causes(report))


def test_the_same_samples_from_memory_wait_for_nothing(tmp_path):
    assert "swapping" not in causes(trained(tmp_path, DataLoader(InMemory(swapped=False), 8)))
