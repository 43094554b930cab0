"""When each sample of a batch begins, and which ones are looked at, for every way in which torch's
fetchers ask for them.
"""

import time
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
import torch
from torch.utils.data import DataLoader, Dataset, IterableDataset

import feedline
from feedline.profiler import clock
from feedline.profiler.events import Flag, Stage
from feedline.profiler.store.layout import SAMPLE_HISTOGRAM, bin_of
from feedline.profiler.store.trainings import open_run
from feedline.profiler.taps.fetch import _EARLY

SAMPLES, BATCH = 63, 10  # the last batch is short; no more than DENSE in any case
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
    "map, sample by sample, tensors of indices": lambda hours: DataLoader(
        Map(hours), None, sampler=list(torch.arange(SAMPLES))
    ),
    "iterable, sample by sample": lambda hours: DataLoader(Iterated(hours), None),
    "tuples of indices": lambda hours: DataLoader(Map(hours), batch_sampler=parts(tuple)),
    "arrays of indices": lambda hours: DataLoader(Map(hours), batch_sampler=parts(np.array)),
    "tensors of indices": lambda hours: DataLoader(Map(hours), batch_sampler=parts(torch.tensor)),
}


def recorded(folder, hours, loader):
    with feedline.record(folder):
        batches = [batch.reshape(-1).tolist() for batch in loader]
    main = open_run(folder).ranks[0].main
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
    assert (looked["wall"][looked["nbytes"] == 1] == TOOK_NS).all()
    assert (
        looked["flags"][looked["nbytes"] == 0] == Flag.FAILED
    ).all()  # an iterator's end is no sample
    assert SAMPLES / 10 < looked["extra"].sum() < SAMPLES * 3  # each stands for about so many


def test_a_short_batch_that_is_dropped_is_counted_as_far_as_it_came(hours, tmp_path):
    samples, main = recorded(
        tmp_path / "run", hours, DataLoader(Iterated(hours), BATCH, drop_last=True)
    )

    assert samples == list(range(SAMPLES // BATCH * BATCH))
    assert (
        main.histograms[SAMPLE_HISTOGRAM][bin_of(TOOK_NS)] == SAMPLES - 1
    )  # nothing says when the last one ended


def test_whole_batches_get_the_programs_own_list(hours, tmp_path):
    samples, main = recorded(tmp_path / "run", hours, DataLoader(AtOnce(hours), BATCH))

    assert samples == list(range(SAMPLES))
    assert main.of(Stage.FETCH)["extra"].sum() == SAMPLES


class Lazy:
    def __iter__(self):
        return (iter(part) for part in parts(list))

    def __len__(self):
        return len(parts(list))


def test_whole_batches_of_indices_that_nobody_can_count(hours, tmp_path):
    class Iterators(Map):
        def __getitems__(self, indices):
            return [self[index] for index in indices]

    samples, main = recorded(
        tmp_path / "run", hours, DataLoader(Iterators(hours), batch_sampler=Lazy())
    )

    assert samples == list(range(SAMPLES))
    assert main.of(Stage.FETCH)["extra"].sum() == SAMPLES


def test_whole_batches_that_are_no_list_have_the_samples_that_were_asked_for(hours, tmp_path):
    class Columns(Map):
        def __getitems__(self, indices):
            return {"index": torch.tensor(indices), "twice": 2 * torch.tensor(indices)}

    loader = DataLoader(
        Columns(hours),
        batch_sampler=[[], *parts(list)],
        collate_fn=lambda columns: columns["index"],
    )
    samples, main = recorded(tmp_path / "run", hours, loader)

    assert samples == list(range(SAMPLES))
    assert main.of(Stage.FETCH)["extra"].sum() == main.of(Stage.NEXT)["extra"].sum() == SAMPLES


def test_indices_that_nobody_can_count_beforehand(hours, tmp_path):
    samples, main = recorded(tmp_path / "run", hours, DataLoader(Map(hours), batch_sampler=Lazy()))

    assert samples == list(range(SAMPLES))
    assert main.of(Stage.FETCH)["extra"].sum() == SAMPLES
    assert len(main.of(Stage.SAMPLE))


def test_of_a_long_run_one_batch_in_a_few_stands_for_all(hours, tmp_path):
    class Uneven(Map):
        def __len__(self):
            return 8000

        def __getitem__(self, index):
            hours[0] += TOOK_NS if index % 5 else 4 * TOOK_NS
            return torch.tensor([index])

    _, main = recorded(tmp_path / "run", hours, DataLoader(Uneven(hours), BATCH))

    fetched, looked, counted = (
        main.of(Stage.FETCH),
        main.of(Stage.SAMPLE),
        main.histograms[SAMPLE_HISTOGRAM],
    )
    assert fetched["extra"].sum() == 8000
    assert counted.sum() == pytest.approx(8000, rel=0.15)
    assert counted[bin_of(4 * TOOK_NS)] / counted.sum() == 0.2  # each batch has two of them
    assert looked["extra"].sum() == pytest.approx(8000, rel=0.25)
    assert len(looked) > 100
    assert (looked["extra"] @ (looked["wall"] > TOOK_NS)) / looked["extra"].sum() == pytest.approx(
        0.2, abs=0.05
    )


@pytest.mark.parametrize("kind", [Map, Iterated])
def test_the_next_epoch_goes_on_where_the_last_one_ended(kind, hours, tmp_path):
    loader = DataLoader(kind(hours), 1)
    with feedline.record(tmp_path / "run"):
        for _ in range(6):
            assert len(list(loader)) == SAMPLES

    main = open_run(tmp_path / "run").ranks[0].main
    assert (
        main.of(Stage.SAMPLE)["extra"] == 1
    ).sum() == _EARLY  # the first ones of all, and of no other epoch
    opened = np.bincount(main.of(Stage.TRAFFIC)["number"] >> 32)
    assert opened[0] == SAMPLES
    assert opened[1:].max() < SAMPLES / 2


def test_of_whole_batches_that_are_slow_at_first_the_slow_share_is_true(hours, tmp_path):
    class SlowAtFirst(AtOnce):
        def __len__(self):
            return 4000

        def __getitem__(self, index):
            hours[0] += 4 * TOOK_NS if index < 2000 else TOOK_NS
            return torch.tensor([index])

    _, main = recorded(tmp_path / "run", hours, DataLoader(SlowAtFirst(hours), 4))

    counted = main.histograms[SAMPLE_HISTOGRAM]
    assert counted.sum() == pytest.approx(4000, rel=0.25)
    assert counted[bin_of(4 * TOOK_NS)] / counted.sum() == pytest.approx(0.5, abs=0.1)


def test_a_data_set_that_answers_to_any_name_or_none_is_left_as_it_is(hours, tmp_path):
    class Proxy:
        def __init__(self):
            self.data = {index: torch.tensor([index]) for index in range(SAMPLES)}

        def __len__(self):
            return SAMPLES

        def __getitem__(self, index):
            return self.data[index]

        def __getattr__(self, name):
            return self.data[name]

    samples, _ = recorded(tmp_path / "run", hours, DataLoader(Proxy(), None))

    assert samples == list(range(SAMPLES))


def test_two_iterators_of_one_loader_in_two_threads_end_as_they_should(tmp_path):
    class Slow(IterableDataset):
        def __iter__(self):
            for index in range(SAMPLES):
                time.sleep(0.001)
                yield torch.tensor([index])

    with feedline.record(tmp_path / "run"):
        loader = DataLoader(Slow(), BATCH)
        with ThreadPoolExecutor() as pool:
            ended = list(
                pool.map(
                    lambda iterator: sum(len(batch) for batch in iterator),
                    [iter(loader), iter(loader)],
                )
            )

    assert ended == [SAMPLES, SAMPLES]


def test_another_recording_begins_anew(hours, tmp_path):
    loader = DataLoader(Map(hours), 1)
    first, second = (
        recorded(tmp_path / name, hours, loader)[1].of(Stage.SAMPLE) for name in ("one", "other")
    )

    assert first["extra"].tolist() == second["extra"].tolist()


def test_a_loader_inside_a_sample_has_samples_of_its_own(hours, tmp_path):
    class Outer(Map):
        def __getitem__(self, index):
            return torch.cat([super().__getitem__(index), *DataLoader(Map(hours), BATCH)][:1])

    samples, main = recorded(tmp_path / "run", hours, DataLoader(Outer(hours), BATCH))

    assert samples == list(range(SAMPLES))
    assert main.of(Stage.FETCH)["extra"].sum() == SAMPLES * (1 + SAMPLES)
