"""Batches that are asked for in a rest are counted, whatever they are, and whoever ends the rest."""

import time

import pytest
import torch
from recording_schedule.resting import rested
from torch.utils.data import DataLoader, Dataset

import feedline
from feedline.profiler.events import Flag, Stage
from feedline.profiler.record.recorder import recorder
from feedline.profiler.store.trainings import open_run
from feedline.profiler.taps import recording_schedule
from feedline.profiler.taps.recording_schedule import _Rest, schedule

BATCHES = 400


class Ends(Dataset):
    """Does in a rest, while a batch is made, what another thread could do then, a few times."""

    def __init__(self, does):
        self.does, self.left = does, 3

    def __len__(self):
        return 2 * BATCHES

    def __getitem__(self, index):
        if self.left and recorder.pause is not None:
            self.left -= 1
            recorder.resume()
            self.does()
        return torch.ones(4)


def begin_another():
    """Begin a rest of a training that other loaders feed."""
    _Rest(schedule, recorder.main, time.monotonic_ns(), 64, time.monotonic_ns(), []).begin()


@pytest.fixture
def train(tmp_path, monkeypatch):
    """Record a training on a loader; returns the training process's records."""
    monkeypatch.setattr(recording_schedule, "_LONG_NS", 10**12)

    def train(loader, of=lambda batch: batch):
        model = torch.nn.Linear(4, 1)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        with feedline.record(tmp_path / "run"):
            for batch in loader:
                model(of(batch)).mean().backward()
                optimizer.step()
                optimizer.zero_grad()
        return open_run(tmp_path / "run").ranks[0].main

    return train


@pytest.mark.parametrize("does", [lambda: None, begin_another])
def test_a_rest_that_ends_while_a_batch_is_made_has_it(train, does):
    dataset = Ends(does)

    main = train(DataLoader(dataset, batch_size=2))

    asked, taken = main.of(Stage.NEXT), main.of(Stage.TAKEN)
    asked = asked[asked["flags"] & Flag.END == 0]
    assert not dataset.left and rested(main)
    assert len(asked) + taken["wall"].sum() == BATCHES
    assert asked["extra"].sum() + taken["extra"].sum() == 2 * BATCHES


def test_batches_out_of_order_have_the_samples_that_were_drawn_for_them(train):
    loader = DataLoader(
        torch.ones(2 * BATCHES, 4),
        batch_size=2,
        num_workers=2,
        in_order=False,
        collate_fn=lambda items: torch.ones(7 * len(items), 4),  # several rows of each
    )
    passes = []

    def batches():
        passes.append(iter(loader))
        yield from passes[0]

    main = train(batches())

    assert rested(main)
    assert main.of(Stage.NEXT)["extra"].sum() + main.of(Stage.TAKEN)["extra"].sum() == 2 * BATCHES
    assert not passes[0]._feedline.drawn


@pytest.mark.filterwarnings("ignore:The PyTorch API of nested tensors")
def test_a_batch_that_cannot_be_asked_for_its_shape_is_counted(train):
    nested = torch.nested.nested_tensor([torch.ones(2), torch.ones(3)])
    batches = DataLoader(
        torch.ones(BATCHES, 4), collate_fn=lambda items: (nested, items[0], nested)
    )

    main = train(batches, lambda batch: batch[1])

    asked = (main.of(Stage.NEXT)["flags"] & Flag.END == 0).sum()
    assert rested(main) and asked + main.of(Stage.TAKEN)["wall"].sum() == BATCHES


def test_a_tensor_of_the_programs_is_not_asked(train):
    class Asked(torch.Tensor):
        questions = []

        @classmethod
        def __torch_function__(cls, function, types, args=(), kwargs=None):
            cls.questions.append(function.__name__)
            return super().__torch_function__(function, types, args, kwargs or {})

    own = torch.ones(2, 4).as_subclass(Asked)
    batches = DataLoader(torch.ones(BATCHES, 4), collate_fn=lambda items: (own, items[0], own))
    Asked.questions.clear()

    train(batches, lambda batch: batch[1])

    assert not Asked.questions
