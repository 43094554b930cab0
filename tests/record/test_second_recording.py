"""Loaders and iterators that live on from one recording of a process to the next."""

import pathlib

import pytest
import torch
from recording_schedule.conftest import one_thread as one_thread
from torch.utils.data import DataLoader

import feedline
from feedline.analysis.explain.reports_of_run import recorded_report
from feedline.profiler.events import Flag, Stage
from feedline.profiler.store.trainings import open_run


def loaders_of(run: pathlib.Path) -> list[tuple[str, int, int, object]]:
    """(role, batches, samples, samples of the dataset) of each, in the order of first use."""
    return [
        (one.role, one.batches, one.samples, one.settings["dataset_samples"])
        for one in recorded_report(open_run(run)).loaders
    ]


def test_workers_that_stay_feed_the_loader_that_the_second_recording_knows(tmp_path):
    """The loaders change places between the recordings."""
    training, validation = (
        DataLoader(torch.ones(samples, 4), 4, num_workers=1, persistent_workers=True)
        for samples in (64, 24)
    )
    model = torch.nn.Linear(4, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)

    def train():
        for batch in training:
            optimizer.zero_grad()
            model(batch).mean().backward()
            optimizer.step()

    def evaluate():
        with torch.no_grad():
            for batch in validation:
                model(batch)

    with feedline.record(tmp_path / "first", strict=True):
        train()
        evaluate()
    with feedline.record(tmp_path / "second", strict=True):
        for _ in range(2):
            evaluate()
            train()

    assert loaders_of(tmp_path / "first") == [("training", 16, 64, 64), ("evaluation", 6, 24, 24)]
    assert loaders_of(tmp_path / "second") == [
        ("evaluation", 12, 48, 24),
        ("training", 32, 128, 64),
    ]
    begun = open_run(tmp_path / "second").ranks[0].main.of(Stage.EPOCH)
    assert (begun["flags"] & Flag.FIRST != 0).tolist() == [True, True, False, False]


@pytest.mark.parametrize("workers", [0, 1])
@pytest.mark.parametrize("kept", [True, False])
def test_a_pass_goes_on_in_the_second_recording(tmp_path, workers, kept):
    """Also where the loader is gone, and after steps that nothing recorded."""
    loader = DataLoader(torch.ones(400, 4), 4, num_workers=workers)
    model = torch.nn.Linear(4, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)

    def train(batches, steps):
        for _ in range(steps):
            optimizer.zero_grad()
            model(next(batches)).mean().backward()
            optimizer.step()

    with feedline.record(tmp_path / "first", strict=True):
        list(DataLoader(torch.ones(4, 4)))
        batches = iter(loader)
        if not kept:
            del loader
        train(batches, 20)
    train(batches, 20)
    with feedline.record(tmp_path / "second", strict=True):
        train(batches, 20)
        if kept:
            list(loader)

    assert loaders_of(tmp_path / "first")[1] == ("training", 20, 80, 400)
    assert loaders_of(tmp_path / "second") == [("training", 20 + 100 * kept, 80 + 400 * kept, 400)]
