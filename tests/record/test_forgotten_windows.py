"""A long training of short epochs, of which some windows of steps were forgotten."""

import pytest
import torch
from torch.utils.data import DataLoader, TensorDataset

import feedline
from feedline.analysis.explain.build import recorded_report
from feedline.profiler.store.segment import Segment
from feedline.profiler.store.trainings import open_run

EPOCHS, STEPS = 1500, 2


@pytest.fixture
def small(monkeypatch):
    """Segments of a 32nd of the usual size."""
    *others, capacity = Segment.__init__.__defaults__
    monkeypatch.setattr(Segment.__init__, "__defaults__", (*others, capacity // 32))


def test_all_of_its_steps_and_samples_are_counted(small, tmp_path, monkeypatch):
    """Half of the steps lie at the border of a window, and are left out of the means."""
    monkeypatch.setenv("FEEDLINE_RESTS", "0")
    net = torch.nn.Linear(4, 1)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    loader = DataLoader(TensorDataset(torch.randn(16 * STEPS, 4)), batch_size=16)
    with feedline.record(tmp_path / "run"):
        for _ in range(EPOCHS):
            for (batch,) in loader:
                optimizer.zero_grad()
                net(batch).mean().backward()
                optimizer.step()
    run = open_run(tmp_path / "run")
    told = recorded_report(run).throughput

    assert run.ranks[0].main.stride > 1, "nothing was forgotten"
    assert told.steps == pytest.approx(EPOCHS * STEPS, rel=0.01)
    assert told.samples == pytest.approx(16 * EPOCHS * STEPS, rel=0.01)
