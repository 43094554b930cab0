"""What a trial may write to, and what is left of it when it has ended: real trainings that do their
worst.
"""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from needs import LANDLOCK

from feedline.analysis.explain.speed_trial import Tried
from feedline.cli import child
from feedline.cli.verify import guard as guarded
from feedline.cli.verify import pairs
from feedline.cli.verify.pairs import _PairPlan

pytestmark = LANDLOCK

HOSTILE = """\
import os
import signal
import subprocess
import sys
from multiprocessing import shared_memory

import torch

outcome = []
for name in ("results.csv", "ledger.jsonl", "unchanged-1/rank0", "../train.py"):
    try:
        open(name, "a").write("mine")
        outcome.append(f"changed {name}")
    except OSError:
        pass
kept = shared_memory.SharedMemory(name=sys.argv[1], create=True, size=1 << 20)
subprocess.Popen(["sleep", sys.argv[2]], start_new_session=True)
if os.fork() == 0:  # a daemon, of no parent
    os.setsid()
    if os.fork() == 0:
        os.execvp("sleep", ["sleep", sys.argv[2]])
    os._exit(0)
os.wait()
for number in (signal.SIGTERM, signal.SIGINT):
    signal.signal(number, lambda *_: print("saving a last checkpoint", flush=True))
outcome += [name for name in ("WANDB_MODE", "MLFLOW_TRACKING_URI", "MLFLOW_RUN_ID") if name in os.environ]
print("outcome:", *outcome, flush=True)

net = torch.nn.Linear(4, 2)
optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
data = torch.utils.data.TensorDataset(torch.randn(64, 4))
while True:
    for (inputs,) in torch.utils.data.DataLoader(data, 4, shuffle=True):
        net(inputs).sum().backward()
        optimizer.step()
"""


def plan(folder, program):
    tried = Tried("num_workers=1", "", "", "samples/s", 0.02, None, "")
    return _PairPlan(tried, {"num_workers": 1}, program, "5", 2, 1, folder, (), quiet=True)


def sleepers(seconds):
    """Processes that a training left."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdecimal():
            try:
                found += (
                    [entry.name]
                    if (entry / "cmdline").read_bytes() == f"sleep\0{seconds}\0".encode()
                    else []
                )
            except OSError:
                continue
    return found


@pytest.fixture
def project(tmp_path, monkeypatch):
    """A folder of results that holds files of the user's, and a training that is started in it."""
    folder = tmp_path / "results"
    (folder / "unchanged-1").mkdir(parents=True)
    (folder / "unchanged-1" / "rank0").write_text("an earlier run")
    for name in ("results.csv", "ledger.jsonl"):
        (folder / name).write_text("weeks of work")
    (tmp_path / "train.py").write_text(HOSTILE)
    monkeypatch.chdir(folder)
    monkeypatch.setenv("HF_HOME", str(tmp_path))
    monkeypatch.setenv("MLFLOW_RUN_ID", "the-one-that-counts")
    return folder


def contents(folder):
    return {
        str(path.relative_to(folder)): path.read_bytes()
        for path in folder.rglob("*")
        if path.is_file() and "changed-9" not in str(path)
    }


def test_a_hostile_training_changes_nothing_and_leaves_nothing(project):
    before, memory, seconds = (
        contents(project.parent),
        f"feedline-test-{os.getpid()}",
        str(90000 + os.getpid() % 10000),
    )
    try:
        failed = pairs._train(
            plan(project, [str(project.parent / "train.py"), memory, seconds]),
            "changed-9",
            ["--stop-after", "5"],
        )
        log = (project / "changed-9.log").read_text()

        assert failed == "", log
        assert "outcome: WANDB_MODE MLFLOW_TRACKING_URI\n" in log
        assert "last checkpoint" not in log
        found = contents(project.parent)
        assert {name: found[name] for name in before} == before
        assert sorted(found.keys() - before.keys()) == ["results/.feedline"]
        assert (project / "changed-9" / "rank0").is_dir()
        assert sleepers(seconds) == []
        assert not Path("/dev/shm", memory).exists()
    finally:
        Path("/dev/shm", memory).unlink(missing_ok=True)
        for pid in sleepers(seconds):
            os.kill(int(pid), signal.SIGKILL)


@pytest.mark.parametrize("name", ["HF_HOME", "XDG_CACHE_HOME", "TORCH_HOME"])
def test_a_cache_that_holds_the_program_is_no_cache(tmp_path, monkeypatch, name):
    (tmp_path / "project").mkdir()
    (tmp_path / "cache").mkdir()
    (tmp_path / "link").symlink_to(tmp_path)
    monkeypatch.chdir(tmp_path / "project")

    for folder in (tmp_path, tmp_path / "project", "/", ".", "..", tmp_path / "link", Path.home()):
        assert Path(folder) not in guarded._caches({name: str(folder)})
    assert tmp_path / "cache" in guarded._caches({name: str(tmp_path / "cache")})


STUBBORN = """\
import signal, subprocess, sys, time
for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
    signal.signal(number, lambda *_: print("saving a last checkpoint", flush=True))
subprocess.Popen(["sleep", sys.argv[1]], start_new_session=True)
print("here", flush=True)
time.sleep(600)
"""
COMMAND = """\
import os, sys
from pathlib import Path
from feedline.cli import child
child.run([sys.executable, "-c", sys.argv[1], sys.argv[2]], Path("log"), dict(os.environ), leaves_nothing=True)
"""


def as_in_the_foreground():
    signal.signal(
        signal.SIGINT, signal.SIG_DFL
    )  # a shell's background job ignores it, and so would all that the tests start


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupted_trial_is_killed_at_once_and_no_handler_of_it_runs(tmp_path, number):
    seconds, log = str(80000 + os.getpid() % 10000), tmp_path / "log"
    command = subprocess.Popen(
        [sys.executable, "-c", COMMAND, STUBBORN, seconds],
        cwd=tmp_path,
        stderr=subprocess.DEVNULL,
        preexec_fn=as_in_the_foreground,
    )
    try:
        until = time.monotonic() + 60
        while not (log.exists() and "here" in log.read_text()):
            assert time.monotonic() < until and command.poll() is None
            time.sleep(0.02)
        sent = time.monotonic()
        command.send_signal(number)
        command.wait(60)

        assert time.monotonic() - sent < child._END_PATIENCE_S / 2
        assert log.read_text() == "here\n"
        assert sleepers(seconds) == []
    finally:
        command.kill()
        for pid in sleepers(seconds):
            os.kill(int(pid), signal.SIGKILL)


RAISES_FOR_CHILDREN = """\
import signal
import subprocess

import torch


def raises(*_):  # as torch does for a loader's workers
    raise RuntimeError("a worker is killed by signal: Killed")


signal.signal(signal.SIGCHLD, raises)
children = [subprocess.Popen(["sleep", "60"]) for _ in range(20)]
model = torch.nn.Linear(2, 1)
optimizer = torch.optim.SGD(model.parameters(), 0.1)
while True:
    optimizer.step()
"""


@pytest.mark.long
def test_killing_the_workers_of_a_trial_does_not_make_it_fail(tmp_path):
    (tmp_path / "train.py").write_text(RAISES_FOR_CHILDREN)
    command = [
        sys.executable,
        "-m",
        "feedline",
        "run",
        "-q",
        "-o",
        "run",
        "--stop-after",
        "3",
        "train.py",
    ]

    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=120)

    assert (done.returncode, done.stderr) == (0, "")


def test_a_failed_run_is_told_in_one_line_with_the_exception():
    said = (
        "exit code 1; end of verify/unchanged-2.log:\n  Traceback (most recent call last):\n  "
        "RuntimeError: out of data"
    )

    assert (
        pairs._in_one_line(said)
        == "exit code 1; end of verify/unchanged-2.log: RuntimeError: out of data"
    )
    assert (
        pairs._in_one_line("exit code 1; end of verify/unchanged-2.log:")
        == "exit code 1; end of verify/unchanged-2.log:"
    )
    assert pairs._in_one_line("") == ""
