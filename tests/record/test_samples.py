"""When each sample of a batch begins, and which ones are looked at, for every way in which torch's fetchers ask for them."""

import numpy as np
import pytest
import torch
from torch.utils.data import DataLoader, Dataset, IterableDataset

import feedline
from feedline.profiler import clock
from feedline.profiler.events import Stage
from feedline.profiler.store.read import Run
from feedline.profiler.store.segment import SAMPLE_HISTOGRAM, bin_of

SAMPLES, BATCH = 103, 10  # the last batch is short
TOOK_NS = 8_000_000


@pytest.fixture
def hours(monkeypatch):
    """A clock that goes on when it is told to."""
    now = [1_000_000_000]
    monkeypatch.setattr(clock, "wall_ns", lambda: now[0])
    return now


class Map(Dataset):
    def __init__(self, hours):
        self.hours = hours

    def __len__(self):
        return SAMPLES

    def __getitem__(self, index):
        self.hours[0] += TOOK_NS
        return torch.tensor([index])


class Iterated(IterableDataset):
    def __init__(self, hours):
        self.hours = hours

    def __iter__(self):
        for index in range(SAMPLES):
            self.hours[0] += TOOK_NS
            yield torch.tensor([index])


class AtOnce(Map):
    def __getitems__(self, indices):
        assert type(indices) is list  # the program's own
        return [self[index] for index in indices]


def parts(make):
    return [make(range(begin, min(begin + BATCH, SAMPLES))) for begin in range(0, SAMPLES, BATCH)]


LOADERS = {
    "map": lambda hours: DataLoader(Map(hours), BATCH),
    "iterable": lambda hours: DataLoader(Iterated(hours), BATCH),
    "map, sample by sample": lambda hours: DataLoader(Map(hours), None),
    "iterable, sample by sample": lambda hours: DataLoader(Iterated(hours), None),
    "tuples of indices": lambda hours: DataLoader(Map(hours), batch_sampler=parts(tuple)),
    "arrays of indices": lambda hours: DataLoader(Map(hours), batch_sampler=parts(np.array)),
    "tensors of indices": lambda hours: DataLoader(Map(hours), batch_sampler=parts(torch.tensor)),
}


def recorded(folder, hours, loader):
    with feedline.record(folder):
        batches = [batch.reshape(-1).tolist() for batch in loader]
    main = Run.open(folder).ranks[0].main
    return sum(batches, []), main


@pytest.mark.parametrize("how", LOADERS)
def test_every_sample_is_counted_with_its_duration(how, hours, tmp_path):
    samples, main = recorded(tmp_path / "run", hours, LOADERS[how](hours))

    assert samples == list(range(SAMPLES))
    assert main.histograms[SAMPLE_HISTOGRAM].sum() == SAMPLES
    assert main.histograms[SAMPLE_HISTOGRAM][bin_of(TOOK_NS)] == SAMPLES


@pytest.mark.parametrize("how", LOADERS)
def test_batches_know_their_samples_and_some_are_looked_at(how, hours, tmp_path):
    _, main = recorded(tmp_path / "run", hours, LOADERS[how](hours))

    fetched, looked = main.of(Stage.FETCH), main.of(Stage.SAMPLE)
    assert fetched["extra"].sum() == SAMPLES
    assert (looked["wall"] == TOOK_NS).all()
    assert SAMPLES / 10 < looked["extra"].sum() < SAMPLES * 3  # each stands for about so many


def test_a_short_batch_that_is_dropped_is_counted_as_far_as_it_came(hours, tmp_path):
    samples, main = recorded(tmp_path / "run", hours, DataLoader(Iterated(hours), BATCH, drop_last=True))

    assert samples == list(range(SAMPLES // BATCH * BATCH))
    assert main.histograms[SAMPLE_HISTOGRAM][bin_of(TOOK_NS)] == SAMPLES - 1  # nothing says when the last one ended


def test_whole_batches_get_the_programs_own_list(hours, tmp_path):
    samples, main = recorded(tmp_path / "run", hours, DataLoader(AtOnce(hours), BATCH))

    assert samples == list(range(SAMPLES))
    assert main.of(Stage.FETCH)["extra"].sum() == SAMPLES


def test_indices_that_nobody_can_count_beforehand(hours, tmp_path):
    class Lazy:
        def __iter__(self):
            return (iter(part) for part in parts(list))

        def __len__(self):
            return len(parts(list))

    samples, main = recorded(tmp_path / "run", hours, DataLoader(Map(hours), batch_sampler=Lazy()))

    assert samples == list(range(SAMPLES))
    assert main.of(Stage.FETCH)["extra"].sum() == SAMPLES
    assert len(main.of(Stage.SAMPLE))
