"""Runs to load, each recorded once."""

import time
from pathlib import Path

import pytest
import torch
from torch.nn.functional import cross_entropy
from torch.utils.data import DataLoader, Dataset, TensorDataset

import feedline
from feedline.profiler.taps import recording_schedule

EPOCHS, BATCHES, BATCH = 2, 12, 4
SHORT_EPOCHS, SHORT_STEPS = 3, 600  # the beginning of an epoch ends a rest


class Samples(Dataset):
    """Each spends its time in a stage of the user's."""

    def __len__(self) -> int:
        return BATCHES * BATCH

    def __getitem__(self, index: int) -> tuple[torch.Tensor, int]:
        with feedline.stage("crop"):
            time.sleep(0.001)
        return torch.full((8,), float(index)), index % 2


def train(loader: DataLoader, epochs: int = 1) -> None:
    before = torch.get_num_threads()
    torch.set_num_threads(1)  # threads that spin for each other take a busy machine's cores
    model = torch.nn.Linear(8, 2)
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    for _ in range(epochs):
        for x, y in loader:
            with feedline.stage("mixup"):
                x = x * 2
            cross_entropy(model(x), y).backward()
            optimizer.step()
    torch.set_num_threads(before)


def in_memory(steps: int) -> DataLoader:
    return DataLoader(
        TensorDataset(torch.ones(BATCH * steps, 8), torch.zeros(BATCH * steps, dtype=torch.int64)),
        BATCH,
    )


@pytest.fixture(scope="session")
def mine(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A training with two workers."""
    path = tmp_path_factory.mktemp("frames") / "mine"
    with feedline.record(path, strict=True):
        train(DataLoader(Samples(), BATCH, num_workers=2), EPOCHS)
    return path


@pytest.fixture(scope="session")
def short(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A training whose steps are so short that most are only counted."""
    path = tmp_path_factory.mktemp("frames") / "short"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(recording_schedule, "_LONG_NS", 10**12)  # on a busy machine, too
        with feedline.record(path, strict=True):
            train(in_memory(SHORT_STEPS // SHORT_EPOCHS), SHORT_EPOCHS)
    return path


@pytest.fixture(scope="session")
def sweep(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two trainings, one after the other."""
    path = tmp_path_factory.mktemp("frames") / "sweep"
    with feedline.record(path, strict=True):
        train(in_memory(5))
        train(in_memory(7))
    return path


@pytest.fixture(scope="session")
def nothing(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A recording in which nothing was trained."""
    path = tmp_path_factory.mktemp("frames") / "nothing"
    with feedline.record(path, strict=True):
        pass
    return path
