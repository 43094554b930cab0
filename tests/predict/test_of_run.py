"""A real training, recorded, and what the replay is given of it."""

import dataclasses
import os
import time
from collections.abc import Iterator
from pathlib import Path
from statistics import fmean
from typing import Any

import pytest
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

import feedline
from feedline.analysis.explain.reports_of_run import TrainingInput, training_input
from feedline.analysis.ledger.finding import Change, PredictedRate, Refused
from feedline.analysis.measure.model import Cpus
from feedline.analysis.predict.of_run import _MIN_BATCHES, recorded_input
from feedline.analysis.predict.recorded_input import RecordedInput
from feedline.analysis.predict.replay_of import predict
from feedline.profiler.store.trainings import open_run

BATCH, SLEEP_S, PER_PASS = 4, 0.005, 25


class Slow(Dataset[torch.Tensor]):
    """Rows that take a while to come."""

    def __len__(self) -> int:
        return BATCH * PER_PASS

    def __getitem__(self, index: int) -> torch.Tensor:
        time.sleep(SLEEP_S)
        return torch.zeros(8)


@pytest.fixture(autouse=True)
def one_thread() -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


def recording(folder: Path, passes: int = 2, **settings: Any) -> TrainingInput:
    loader, model = DataLoader(Slow(), batch_size=BATCH, **settings), nn.Linear(8, 1)
    optimizer = torch.optim.SGD(model.parameters(), 0.01)
    with feedline.record(folder, strict=True):
        for _ in range(passes):
            for rows in loader:
                optimizer.zero_grad()
                model(rows).sum().backward()
                optimizer.step()
    found = training_input(open_run(folder))
    assert found is not None
    return found


@pytest.fixture(scope="module")
def with_a_worker(tmp_path_factory: pytest.TempPathFactory) -> TrainingInput:
    return recording(tmp_path_factory.mktemp("one") / "run", num_workers=1)


@pytest.fixture(scope="module")
def without_workers(tmp_path_factory: pytest.TempPathFactory) -> TrainingInput:
    return recording(tmp_path_factory.mktemp("none") / "run")


def read(found: TrainingInput) -> RecordedInput:
    recorded = recorded_input(found.shown, found.facts)
    assert isinstance(recorded, RecordedInput), recorded
    return recorded


def test_batches_are_divided_into_computing_and_waiting(with_a_worker):
    recorded = read(with_a_worker)

    waits = fmean(task.off_cpu_s for task in recorded.batches)
    assert waits >= BATCH * SLEEP_S * 0.95
    assert fmean(task.cpu_s for task in recorded.batches) < waits / 2
    assert _MIN_BATCHES <= len(recorded.batches) <= 2 * PER_PASS


def test_passes_and_settings_are_those_of_the_program(with_a_worker):
    recorded = read(with_a_worker)

    assert (
        recorded.setting.num_workers,
        recorded.setting.prefetch_factor,
        recorded.setting.in_order,
    ) == (1, 2, True)
    assert (recorded.starts.counted, recorded.starts.per_pass, recorded.starts.to_its_end) == (
        1,
        PER_PASS,
        True,
    )
    assert recorded.samples_per_batch == BATCH
    assert recorded.samples_per_s == with_a_worker.facts.throughput.samples_per_s


def test_steps_are_without_their_waits(with_a_worker):
    recorded = read(with_a_worker)

    assert 0 < fmean(task.alone_s for task in recorded.steps) < with_a_worker.facts.step.mean_s / 2
    assert recorded.receiving.cpu_s > 0


# beside a load of 13, batches wait for their receiver as long as it takes to make them
@pytest.mark.quiet
def test_more_workers_wait_at_the_same_time(with_a_worker):
    predicted = predict(read(with_a_worker), Change({"num_workers": 4, "persistent_workers": True}))

    assert isinstance(predicted, PredictedRate), predicted
    assert 2.5 < predicted.after / predicted.before < 5
    assert predicted.low < predicted.after < predicted.high


def test_a_training_without_workers_is_predicted_with_some(without_workers):
    recorded = read(without_workers)
    predicted = predict(recorded, Change({"num_workers": 3, "persistent_workers": True}))

    assert recorded.setting.num_workers == 0
    assert fmean(task.off_cpu_s for task in recorded.batches) >= BATCH * SLEEP_S * 0.95
    assert isinstance(predicted, PredictedRate), predicted
    assert 2 < predicted.after / predicted.before < 4


def test_a_short_run_is_refused(tmp_path):
    found = recording(tmp_path / "run", passes=1)
    few = dataclasses.replace(found.shown, first=PER_PASS - _MIN_BATCHES // 2)

    refused = recorded_input(few, found.facts)

    assert isinstance(refused, Refused)
    assert refused.reason == "too_few_batches"


@pytest.mark.parametrize(
    ("reason", "change"),
    [
        ("no_loader", {"loader": None}),
        ("loader_in_thread", {"loader_elsewhere": True}),
        ("not_a_dataloader", {"kind": "DALIGenericIterator"}),
        ("idle_workers", {"settings": {"map_style": False, "num_workers": 3}}),
    ],
)
def test_what_the_replay_does_not_know_is_refused(with_a_worker, reason, change):
    facts = with_a_worker.facts
    assert facts.loader is not None
    if "kind" in change:
        change = {"loader": dataclasses.replace(facts.loader, kind=change["kind"])}
    elif "settings" in change:
        change = {
            "loader": dataclasses.replace(
                facts.loader, settings=facts.loader.settings | change["settings"]
            )
        }

    refused = recorded_input(with_a_worker.shown, dataclasses.replace(facts, **change))

    assert isinstance(refused, Refused)
    assert refused.reason == reason


def test_a_niced_training_leaves_other_programs_what_they_have(with_a_worker, monkeypatch):
    machine = with_a_worker.shown.rank.manifest.machine
    assert machine["nice"] == os.getpriority(os.PRIO_PROCESS, 0)
    use = Cpus(allowed=4.0, quota=None, affinity=4.0, own=1.0, others=2.5, free=0.5)
    found = dataclasses.replace(
        with_a_worker, facts=dataclasses.replace(with_a_worker.facts, effective_cpus=4.0, cpus=use)
    )

    monkeypatch.setitem(machine, "nice", 10)
    niced = read(found)
    monkeypatch.setitem(machine, "nice", 0)
    usual = read(found)

    assert niced.others == usual.kept == 0
    assert niced.kept == 2.5 and usual.others >= 2.5
