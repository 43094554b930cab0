"""A run as data frames says what the report says."""

import pytest
import torch
from torch.utils.data import DataLoader, TensorDataset

import feedline
from feedline.analysis import build
from feedline.analysis.frames import records, steps
from feedline.profiler.store.read import Run


def train(batches):
    model = torch.nn.Linear(3, 1)
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    for (batch,) in DataLoader(TensorDataset(torch.ones(4 * batches, 3)), batch_size=4):
        with feedline.stage("mixup"):
            batch = batch * 2
        model(batch).sum().backward()
        optimizer.step()


@pytest.fixture
def run(tmp_path):
    with feedline.record(tmp_path / "run"):
        train(6)
    return Run.open(tmp_path / "run")


def test_steps_are_those_of_the_report(run):
    frame, report = steps(run.ranks[0]), build.build(run)

    assert len(frame) == report.throughput.steps == 6
    assert frame["samples"].tolist() == [4] * 6
    # without those up to the one whose operations were counted
    assert frame.loc[3:, "wall_s"].mean() == pytest.approx(report.step.mean_s)
    stages = frame.drop(columns=["start_s", "wall_s", "batches", "samples"])
    assert stages.sum(axis=1).tolist() == pytest.approx(frame["wall_s"].tolist())
    assert {"mixup", "forward", "backward", "optimizer", "other"} <= set(stages)


def test_records_carry_names_and_processes(run):
    frame = records(run.ranks[0])

    assert set(frame["process"]) == {"main"}
    assert set(frame.loc[frame["stage"] == "forward", "name"]) == {"Linear"}
    assert set(frame.loc[frame["stage"] == "user", "name"]) == {"mixup"}


def test_a_decorated_function_is_recorded_and_nothing_stays_attached(tmp_path):
    from feedline.profiler.record.recorder import recorder

    feedline.record(tmp_path / "run")(train)(3)

    assert recorder.main is None
    assert len(steps(Run.open(tmp_path / "run").ranks[0])) == 3


def test_a_second_recording_into_the_same_folder_gets_the_next_free_name(tmp_path):
    from feedline.profiler.errors import OutputError

    with feedline.record(tmp_path / "run"):
        pass
    with feedline.record(tmp_path / "run"):
        train(1)
    assert len(steps(Run.open(tmp_path / "run-2").ranks[0])) == 1
    with pytest.raises(OutputError, match="holds a run already"), feedline.record(tmp_path / "run", strict=True):
        pass
    with feedline.record(tmp_path / "run", overwrite=True):
        train(2)
    assert len(steps(Run.open(tmp_path / "run").ranks[0])) == 2
