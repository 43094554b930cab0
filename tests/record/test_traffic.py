"""File traffic of batches: all of the first ones, then one in a few that stands for the others."""

import os

import pytest
from torch.utils.data import DataLoader, Dataset

import feedline
from feedline.profiler.clock import counters
from feedline.profiler.events import Stage
from feedline.profiler.store.trainings import open_run
from feedline.profiler.taps.fetch import _DENSE, _OPENED

SIZE, BATCH = 3000, 2
pytestmark = pytest.mark.skipif(
    not os.path.exists("/proc/thread-self/io"),
    reason="this kernel does not count a thread's file traffic",
)


class Files(Dataset):
    def __init__(self, path, samples):
        self.path, self.samples = path, samples

    def __len__(self):
        return self.samples

    def __getitem__(self, index):
        with open(self.path, "rb", buffering=0) as file:
            return len(file.read(SIZE))


def test_the_sums_are_those_of_all_batches(tmp_path):
    file = tmp_path / "data"
    file.write_bytes(bytes(SIZE))
    batches = _DENSE + 50 * _OPENED

    with feedline.record(tmp_path / "run"):
        for _ in DataLoader(Files(file, BATCH * batches), batch_size=BATCH):
            pass

    rank = open_run(tmp_path / "run").ranks[0]
    records = rank.main.of(Stage.TRAFFIC)
    assert len(records) == pytest.approx(_DENSE + 50, abs=8)
    samples = rank.main.of(Stage.BATCH)["extra"].sum()
    assert samples == pytest.approx(batches * BATCH, rel=0.15)
    assert records["nbytes"].sum() / samples == pytest.approx(
        SIZE, rel=0.01
    )  # without our own readings of /proc
    assert records["extra"].sum() >= samples


def test_a_fork_counts_its_own_traffic_and_not_its_parents():
    begun = counters.traffic()
    here, there = os.pipe()
    child = os.fork()
    if not child:
        before = counters.traffic()
        with open("/dev/zero", "rb", buffering=0) as zeros:
            zeros.read(SIZE)
        os.write(there, str(counters.traffic().chars - before.chars).encode())
        os._exit(0)

    os.waitpid(child, 0)
    read = int(os.read(here, 100))
    assert read == SIZE
    assert (
        len(str(SIZE)) <= counters.traffic().chars - begun.chars < SIZE
    )  # what it told; from 3.12 on fork reads /proc too
