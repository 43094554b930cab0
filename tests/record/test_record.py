"""``feedline.record`` as a decorator, and into a folder that is taken."""

import errno
import fcntl
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from torch.utils.data import DataLoader, TensorDataset

import feedline
from feedline.profiler.errors import OutputError
from feedline.profiler.files import owned
from feedline.profiler.record.recorder import recorder
from feedline.profiler.session import api
from feedline.profiler.store.layout import RESERVE


def train(batches):
    model = torch.nn.Linear(3, 1)
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    for (batch,) in DataLoader(TensorDataset(torch.ones(4 * batches, 3)), batch_size=4):
        model(batch).sum().backward()
        optimizer.step()


def test_a_decorated_function_is_recorded_and_nothing_stays_attached(tmp_path):
    feedline.record(tmp_path / "run")(train)(3)

    assert recorder.main is None
    assert len(feedline.load(tmp_path / "run").steps) == 3


def test_a_decorated_function_that_calls_itself_is_recorded_once(tmp_path, capfd):
    @feedline.record(tmp_path / "run")
    def train_twice(times):
        train(3)
        if times > 1:
            train_twice(times - 1)

    train_twice(2)

    assert recorder.main is None
    assert [len(one.steps) for one in feedline.load_all(tmp_path / "run")] == [3, 3]
    assert capfd.readouterr().err.count("not recording: this process is already being") == 1


def test_a_recording_inside_itself_does_not_end_it(tmp_path):
    recording = feedline.record(tmp_path / "run")
    with recording:
        with recording:
            train(3)
        train(4)

    assert recorder.main is None
    assert [len(one.steps) for one in feedline.load_all(tmp_path / "run")] == [3, 4]


def test_a_program_that_goes_to_another_folder_is_recorded_where_it_began(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()

    with feedline.record("runs/🚀"):
        os.chdir(elsewhere)
        train(3)

    assert os.listdir(elsewhere) == []
    assert len(feedline.load(tmp_path / "runs" / "🚀").steps) == 3
    assert (tmp_path / "runs" / "🚀" / "rank0" / "stacks.log").exists()


def test_an_interrupt_at_the_end_of_stopping_leaves_a_run_that_ended(tmp_path, monkeypatch):
    interrupts = [KeyboardInterrupt()]
    discard = owned.discard

    def interrupted(*paths):
        if interrupts:
            raise interrupts.pop()
        return discard(*paths)

    with pytest.raises(KeyboardInterrupt), feedline.record(tmp_path / "run"):
        train(3)
        monkeypatch.setattr(owned, "discard", interrupted)

    manifest = json.loads((tmp_path / "run" / "rank0" / "manifest.json").read_text())
    assert (manifest["ended"], manifest["exit_code"]) == (True, 130)
    assert not (tmp_path / "run" / "rank0" / RESERVE).exists() and recorder.main is None


def test_a_program_that_put_no_text_into_sys_argv_is_recorded(tmp_path, monkeypatch):
    monkeypatch.setattr(sys, "argv", [Path("train.py"), "--epochs", 3])

    with feedline.record(tmp_path / "run"):
        train(3)

    manifest = json.loads((tmp_path / "run" / "rank0" / "manifest.json").read_text())
    assert manifest["command"] == ["train.py", "--epochs", "3"]


def test_a_machine_that_does_not_tell_of_shared_memory_is_recorded(tmp_path, monkeypatch):
    def forbidden(path):
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), path)

    monkeypatch.setattr(os, "statvfs", forbidden)

    with feedline.record(tmp_path / "run"):
        train(3)

    manifest = json.loads((tmp_path / "run" / "rank0" / "manifest.json").read_text())
    assert manifest["machine"]["shm_bytes"] is None


def test_whatever_is_wrong_with_recording_the_program_runs_unless_it_is_strict(
    tmp_path, monkeypatch, capfd
):
    monkeypatch.setattr(sys, "argv", None)

    with feedline.record(tmp_path / "run"):
        train(1)
    assert feedline.record(tmp_path / "run")(lambda: "ran")() == "ran"
    with pytest.raises(TypeError), feedline.record(tmp_path / "run", strict=True):
        raise AssertionError("it is not to be recorded")

    why = "feedline: not recording: 'NoneType' object is not iterable\n"
    assert capfd.readouterr().err == why * 2
    assert recorder.main is None and not (tmp_path / "run").exists()


WITHOUT_LOCKS = """
import errno, fcntl, sys
import feedline

def refused(fd, how):
    raise OSError(errno.ENOLCK, "No locks available")

fcntl.flock = refused
with feedline.record(sys.argv[1]):
    print("ready", flush=True)
    sys.stdin.read()
"""


def test_where_there_are_no_locks_a_run_that_is_still_going_on_is_not_overwritten(
    tmp_path, monkeypatch
):
    def refused(fd, how):
        raise OSError(errno.ENOLCK, "No locks available")

    monkeypatch.setattr(fcntl, "flock", refused)
    monkeypatch.setattr(owned, "_BUSY_S", 0.1)
    again = feedline.record(tmp_path / "run", overwrite=True, strict=True)
    live = subprocess.Popen(
        [sys.executable, "-c", WITHOUT_LOCKS, tmp_path / "run"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    with live:
        assert live.stdout.readline() == "ready\n"
        with pytest.raises(OutputError, match="is being used by another process"), again:
            raise AssertionError("it is not to be recorded")
        live.stdin.close()
    assert live.returncode == 0
    with again:
        train(2)

    assert os.listdir(tmp_path) == ["run"]
    assert len(feedline.load(tmp_path / "run").steps) == 2


def test_a_run_in_the_place_of_one_that_is_recorded_keeps_its_manifest(tmp_path):
    run = tmp_path / "run"
    with feedline.record(run):
        train(1)
        run.rename(tmp_path / "older")
        owned.claim(run, "run", "another launch")
        owned.write(owned.subfolder(run, "rank0"), "manifest.json", "newer")
        train(2)

    assert (run / "rank0" / "manifest.json").read_text() == "newer"


def test_a_stage_and_a_metric_that_are_given_anything_leave_the_training_alone(
    tmp_path, monkeypatch, capfd
):
    monkeypatch.setattr(api, "_unrecorded", [])
    with feedline.record(tmp_path / "run"):
        with feedline.stage(3):
            train(2)
        for value in (None, "high", torch.ones(2), 10**400):
            feedline.metric("accuracy", value)
        feedline.metric(7, torch.tensor(0.5, requires_grad=True))

    said = capfd.readouterr().err
    assert said.count("feedline: the metric accuracy is not recorded where its value is not") == 1
    assert len(feedline.load(tmp_path / "run").steps) == 2


def test_a_second_recording_into_the_same_folder_gets_the_next_free_name(tmp_path):
    with feedline.record(tmp_path / "run"):
        pass
    with feedline.record(tmp_path / "run"):
        train(1)
    assert len(feedline.load(tmp_path / "run-2").steps) == 1
    with (
        pytest.raises(OutputError, match="already holds a run"),
        feedline.record(tmp_path / "run", strict=True),
    ):
        pass
    with feedline.record(tmp_path / "run", overwrite=True):
        train(2)
    assert len(feedline.load(tmp_path / "run").steps) == 2
