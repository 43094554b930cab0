"""``--set``: other arguments for the training's DataLoader, in this process."""

import contextlib
import multiprocessing
import weakref

import pytest
import torch
from torch.utils.data import (
    DataLoader,
    DistributedSampler,
    IterableDataset,
    SequentialSampler,
    TensorDataset,
)

from feedline.profiler.errors import FixError
from feedline.profiler.session.hooks import Hooks
from feedline.profiler.session.overrides import Overrides
from feedline.profiler.taps import loader_override
from feedline.profiler.taps.loader_override import LoaderOverride, _has_guard, _WorkerThreads
from feedline.profiler.taps.patch import Patches

DATA = TensorDataset(torch.arange(8.0))
HERE = "tests/apply/test_overrides.py"


class Stream(IterableDataset):
    def __iter__(self):
        return iter(range(8))


class Threads(torch.utils.data.Dataset):
    def __len__(self):
        return 2

    def __getitem__(self, index):
        return torch.get_num_threads()


class CannotBePickled(torch.utils.data.Dataset):
    def __init__(self):
        self.function = lambda index: index

    def __len__(self):
        return 4

    def __getitem__(self, index):
        return index


@contextlib.contextmanager
def changed(made_at="", strict=False, **settings):
    told, patches = [], Patches()
    override = LoaderOverride(settings, made_at, lambda *row: told.append(row), strict)
    override.attach(DataLoader, patches)
    try:
        yield told
    finally:
        patches.undo()


class Unhashable(DataLoader):
    def __eq__(self, other):
        return self is other


def test_a_loader_that_cannot_be_hashed_is_gone_through():
    with changed(num_workers=2):
        assert len(list(Unhashable(DATA, 4, True))) == 2


def test_loaders_that_shuffle_are_changed_and_others_are_not():
    with changed(num_workers=2, prefetch_factor=4) as told:
        loaders = [
            DataLoader(DATA, 4, True),
            DataLoader(DATA, 4),
            DataLoader(DATA, 4, sampler=SequentialSampler(DATA)),
        ]
        spread = DataLoader(DATA, 4, sampler=DistributedSampler(DATA, 2, 0))

    assert [
        (loader.num_workers, loader.prefetch_factor, loader.batch_size) for loader in loaders
    ] == [
        (2, 4, 4),
        (0, None, 4),
        (0, None, 4),
    ]
    assert spread.num_workers == 2
    assert (
        told[0][0] and "num_workers=2 (was not set), prefetch_factor=4 (was not set)" in told[0][1]
    )


def test_a_line_names_the_loader_to_change_whatever_its_order():
    with changed(made_at=f"{HERE}:{changed_line()}", num_workers=1) as told:
        other = DataLoader(DATA, shuffle=True)
        meant = DataLoader(DATA)  # the line

    assert (other.num_workers, meant.num_workers) == (0, 1)
    assert told[-1] == (
        True,
        f"the training is changed: num_workers=1 (was not set), {HERE}:{changed_line()}",
    )


def changed_line():
    with open(__file__) as file:
        return next(number for number, line in enumerate(file, 1) if line.endswith("# the line\n"))


def test_without_workers_what_needs_them_is_left_out():
    with changed(num_workers=0):
        loader = DataLoader(
            DATA,
            4,
            True,
            num_workers=2,
            prefetch_factor=3,
            persistent_workers=True,
            timeout=9,
            multiprocessing_context="spawn",
        )

    assert (
        loader.num_workers,
        loader.prefetch_factor,
        loader.persistent_workers,
        loader.timeout,
    ) == (0, None, False, 0)
    assert len(list(loader)) == 2


@pytest.mark.parametrize(
    ("settings", "data", "why"),
    [
        (
            {"prefetch_factor": 4},
            DATA,
            "prefetch_factor needs workers, and this DataLoader has num_workers=0",
        ),
        ({"num_workers": 2}, Stream(), "its IterableDataset was read by one process only"),
        ({"no_such": 2}, DATA, "the DataLoader of this version has no argument no_such"),
    ],
)
def test_what_cannot_be_leaves_the_loader_as_it_was_and_is_told(settings, data, why):
    with changed(**settings) as told:
        loader = DataLoader(data, 4, shuffle=None if isinstance(data, Stream) else True)
        assert (loader.num_workers, len(list(loader))) == (0, 2)

    assert not told[-1][0] and why in told[-1][1]


def test_a_second_recording_goes_on_changing_loaders_and_knows_of_those_before():
    overrides, told = Overrides({"num_workers": 1}), []
    for _ in range(2):
        hooks = Hooks(lambda *row: told.append(row), lambda: None)
        overrides.attach(hooks)
        assert DataLoader(DATA, shuffle=True).num_workers == 1
        hooks.detach()
        assert DataLoader(DATA, shuffle=True).num_workers == 0

    assert overrides.failed == {}
    assert [row[1] for row in told] == [False, True, True]


def test_a_changed_loader_is_not_kept_alive():
    with changed(num_workers=1):
        loader = DataLoader(DATA, shuffle=True)
        there = weakref.ref(loader)
        del loader

        assert there() is None


def test_strict_raises_instead():
    with (
        changed(strict=True, prefetch_factor=4),
        pytest.raises(FixError, match="prefetch_factor needs workers"),
    ):
        DataLoader(DATA, shuffle=True)


def test_a_loader_whose_workers_cannot_start_goes_on_with_its_own_arguments_and_random_numbers():
    torch.manual_seed(3)
    expected = [batch.tolist() for batch in DataLoader(CannotBePickled(), 2, shuffle=True)]
    torch.manual_seed(3)
    with changed(num_workers=1, multiprocessing_context="spawn") as told:
        loader = DataLoader(CannotBePickled(), 2, shuffle=True)
        found = [batch.tolist() for batch in loader]

    assert found == expected
    assert loader.num_workers == 0
    assert not told[-1][0]


@pytest.mark.parametrize("method", ["fork", pytest.param("spawn", marks=pytest.mark.long)])
def test_libraries_in_workers_get_so_many_threads(method):
    with changed(worker_threads=3):
        loader = DataLoader(Threads(), shuffle=True, num_workers=1, multiprocessing_context=method)
        assert [int(threads) for threads in loader] == [3, 3]
        again = DataLoader(
            loader.dataset, shuffle=True, num_workers=1, worker_init_fn=loader.worker_init_fn
        )  # as libraries rebuild it

    assert isinstance(again.worker_init_fn, _WorkerThreads) and again.worker_init_fn.then is None


def test_workers_that_run_the_script_again_are_not_started(tmp_path, monkeypatch):
    (tmp_path / "bare.py").write_text("import torch\ntorch.save({}, 'last.pt')\n")
    (tmp_path / "guarded.py").write_text(
        "def main(): ...\nif __name__ == '__main__':\n    main()\n"
    )
    assert [_has_guard(str(tmp_path / name)) for name in ("bare.py", "guarded.py")] == [False, True]
    monkeypatch.setattr(loader_override, "_has_guard", lambda script: False)

    with changed(num_workers=1, multiprocessing_context="spawn") as told:
        assert DataLoader(DATA, shuffle=True).num_workers == 0
    assert told[-1][1].startswith("workers would run the script again")

    with changed(num_workers=1) as told:
        assert DataLoader(DATA, shuffle=True).num_workers == int(
            multiprocessing.get_start_method() == "fork"
        )
