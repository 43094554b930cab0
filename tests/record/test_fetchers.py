"""A loader's fetcher is recorded, and is otherwise what it is without feedline."""

import copy
import gc
import pickle
import weakref
from types import SimpleNamespace

import pytest
import torch
from torch.utils.data import DataLoader, Dataset, IterableDataset
from torch.utils.data._utils.fetch import _MapDatasetFetcher
from torch.utils.data.dataloader import _DatasetKind

import feedline
from feedline.profiler.events import Stage
from feedline.profiler.store.trainings import open_run

SAMPLES, BATCH = 12, 4


class Map(Dataset):
    def __len__(self):
        return SAMPLES

    def __getitem__(self, index):
        return torch.tensor([index])


class Rows:
    """An iterator of a dataset: it yields how many of them are in memory."""

    made = weakref.WeakSet()

    def __init__(self):
        self.left = SAMPLES
        self.made.add(self)

    def __iter__(self):
        return self

    def __next__(self):
        self.left -= 1
        if self.left < 0:
            raise StopIteration
        return torch.tensor([len(self.made)])


class Iterated(IterableDataset):
    def __iter__(self):
        return Rows()


@pytest.fixture
def no_collections():
    """Keep the garbage collector from coming by."""
    gc.collect()
    gc.disable()
    yield
    gc.enable()


@pytest.fixture
def record(tmp_path):
    return lambda: feedline.record(tmp_path / "run", strict=True)


def fetches(tmp_path):
    return len(open_run(tmp_path / "run").ranks[0].main.of(Stage.FETCH))


@pytest.mark.parametrize("kind", [Map, Iterated])
@pytest.mark.parametrize("whole", [True, False], ids=["to its end", "left early"])
def test_a_dataset_is_freed_with_its_loader(kind, whole, record, no_collections):
    with record():
        dataset = kind()
        for _ in DataLoader(dataset, BATCH):
            if not whole:
                break
        lives = weakref.ref(dataset)
        del dataset
        assert lives() is None


def test_a_worker_that_stays_frees_what_made_an_earlier_epoch(record):
    loader = DataLoader(
        Iterated(),
        BATCH,
        num_workers=1,
        persistent_workers=True,
        worker_init_fn=lambda number: gc.disable(),
    )
    with record():
        alive = [batch.max().item() for _ in range(4) for batch in loader]

    assert len(alive) == 4 * SAMPLES // BATCH
    assert max(alive[-SAMPLES // BATCH :]) == 1


def fetcher_of(loader):
    return iter(loader)._dataset_fetcher


AGAIN = {
    "the fetcher": lambda fetcher: fetcher,
    "a pickle": lambda fetcher: pickle.loads(pickle.dumps(fetcher)),
    "a pickle of an old protocol": lambda fetcher: pickle.loads(pickle.dumps(fetcher, 0)),
    "a copy": copy.copy,
    "a deep copy": copy.deepcopy,
    "its method": lambda fetcher: SimpleNamespace(fetch=fetcher.fetch),
}


@pytest.mark.parametrize("way", AGAIN)
def test_a_fetcher_and_its_copies_work_after_the_first_one_is_gone(way, record):
    with record():
        again = AGAIN[way](fetcher_of(DataLoader(Map(), BATCH)))
        gc.collect()
        assert again.fetch([3, 4]).tolist() == [[3], [4]]
    assert again.fetch([5]).tolist() == [[5]]


@pytest.mark.parametrize("way", ["a pickle", "a copy", "a deep copy"])
def test_a_copy_of_a_fetcher_has_the_attributes_that_it_has_without_feedline(way, record):
    plain = fetcher_of(DataLoader(Map(), BATCH))
    with record():
        watched = fetcher_of(DataLoader(Map(), BATCH))
        again = AGAIN[way](watched)

    assert type(again) is type(plain) and vars(again).keys() == vars(plain).keys()
    assert again.collate_fn is plain.collate_fn
    assert isinstance(watched, type(plain)) and type(watched).__name__ == type(plain).__name__


class Doubling(_MapDatasetFetcher):
    def fetch(self, index):
        return super().fetch(index) * 2


def by_attribute(*args):
    """As another tool would: it wraps the method of one fetcher."""
    fetcher = _MapDatasetFetcher(*args)
    fetcher.fetch = lambda index: type(fetcher).fetch(fetcher, index) * 2
    return fetcher


class Delegating:
    """Has its method from another object."""

    def __init__(self, *args):
        self.inner = Doubling(*args)

    def __getattr__(self, name):
        return getattr(self.__dict__["inner"], name)


@pytest.mark.parametrize("made", [Doubling, by_attribute, Delegating])
def test_a_fetcher_with_a_fetch_of_its_own_is_asked_and_recorded(
    made, record, tmp_path, monkeypatch
):
    monkeypatch.setattr(_DatasetKind, "create_fetcher", lambda kind, *args: made(*args))
    with record():
        batches = [batch.reshape(-1).tolist() for batch in DataLoader(Map(), BATCH)]

    assert sum(batches, []) == [2 * number for number in range(SAMPLES)]
    assert fetches(tmp_path) == SAMPLES // BATCH
