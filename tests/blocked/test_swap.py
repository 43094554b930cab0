"""Memory that comes back from swap is told as swap: real page faults, where the machine has room in a swap."""

import mmap
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from blocked.test_what_blocks import SAMPLES, causes, recorded

PAGE, PAGEOUT = mmap.PAGESIZE, 21  # MADV_PAGEOUT of Linux 5.4: to swap, now
OF_A_SAMPLE = 512 * PAGE


def free_swap() -> int:
    """Bytes."""
    rows = [row.split() for row in Path("/proc/swaps").read_text().splitlines()[1:]] if Path("/proc/swaps").exists() else []
    return sum(int(size) - int(used) for _, _, size, used, *_ in rows) * 1024


pytestmark = pytest.mark.skipif(free_swap() < 2 * SAMPLES * OF_A_SAMPLE, reason="this machine has no swap, or no room in it")


def samples(swapped: bool) -> Callable[[int], object]:
    """Each touches 512 pages of its own, in an order that no readahead foresees."""
    memory = mmap.mmap(-1, SAMPLES * OF_A_SAMPLE, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    view = np.frombuffer(memory, np.uint8)
    view[:] = np.random.default_rng(0).integers(0, 256, len(view), np.uint8)
    pages = np.random.default_rng(1).permutation(len(view) // PAGE).reshape(SAMPLES, -1)
    if swapped:
        memory.madvise(PAGEOUT)
    return lambda index: int(view[pages[index] * PAGE].sum())


def test_samples_whose_memory_is_in_swap_are_told_to_wait_for_it(tmp_path):
    report = recorded(tmp_path, samples(swapped=True), 0)

    assert causes(report)[0] == "swapping", report.verdict
    assert "cold_storage" not in causes(report)
    assert report.workers is not None and report.workers.blocked_by["page fault"] > 0.5


def test_the_same_samples_from_memory_wait_for_nothing(tmp_path):
    assert "swapping" not in causes(recorded(tmp_path, samples(swapped=False), 0))
