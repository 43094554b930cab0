"""Numbers without an end, which programs give as ``sys.maxsize``, leave a manifest that can be read."""

import sys

import pytest
import torch
from torch.utils.data import DataLoader, Dataset, IterableDataset

import feedline
from feedline.profiler.session.ending import Ending
from feedline.profiler.store.manifest import Manifest


class Endless(Dataset):
    def __len__(self):
        return sys.maxsize

    def __getitem__(self, index):
        return torch.ones(4)


class CountsItsLines(IterableDataset):
    asked = 0

    def __len__(self):
        self.asked += 1
        return 16

    def __iter__(self):
        return iter(torch.ones(16, 4))


def trained(folder, loader, passes=1, schedule=None):
    """Return the manifest of a training of a few steps."""
    model = torch.nn.Linear(4, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    with feedline.record(folder):
        scheduler = None if schedule is None else schedule(optimizer)
        for _ in range(passes):
            for _, batch in zip(range(4), loader):
                model(batch).mean().backward()
                optimizer.step()
                if scheduler is not None:
                    scheduler.step()
    return Manifest.read(folder / "rank0")


def test_a_dataset_without_an_end_has_no_length(tmp_path):
    manifest = trained(tmp_path / "run", DataLoader(Endless(), batch_size=8))

    (loader,) = manifest.loaders
    assert loader["dataset"] == "Endless"
    assert not {"dataset_samples", "epoch_samples"} & set(loader)
    assert manifest.training["samplers"] == []


@pytest.mark.parametrize(
    ("schedule", "horizon"),
    [
        (lambda it: torch.optim.lr_scheduler.ConstantLR(it, total_iters=sys.maxsize), None),
        (lambda it: torch.optim.lr_scheduler.MultiStepLR(it, [2.5, 7.5]), 7),
        (lambda it: torch.optim.lr_scheduler.MultiStepLR(it, torch.arange(3).numpy()), 2),
        (lambda it: torch.optim.lr_scheduler.MultiStepLR(it, [3, float("inf")]), None),
    ],
    ids=["endless", "fractions of the epochs", "numpy's", "infinite"],
)
def test_a_schedule_of_any_number_is_described(tmp_path, schedule, horizon):
    manifest = trained(tmp_path / "run", DataLoader(torch.ones(8, 4)), schedule=schedule)

    (scheduler,) = manifest.training["schedulers"]
    assert (scheduler["horizon"], scheduler["steps"]) == (horizon, 4)


@pytest.mark.parametrize(
    ("code", "told"), [(1 << 40 | 3, 3), (-(1 << 40), 0), (1 << 70, -1), (-5, -5), (300, 300)]
)
def test_an_exit_code_is_what_the_system_makes_of_it(tmp_path, code, told):
    ending = Ending.of(SystemExit(code))
    assert ending.exit_code == told
    Manifest(exit_code=ending.exit_code).write(tmp_path / "rank0")
    assert Manifest.read(tmp_path / "rank0").exit_code == told


def test_a_stream_is_not_asked_for_its_length(tmp_path):
    stream = CountsItsLines()

    trained(tmp_path / "run", DataLoader(stream, batch_size=4), passes=3)

    assert stream.asked == 0
