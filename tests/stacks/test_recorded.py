"""Stacks of real trainings, in the main process and in workers."""

import os
import signal
import time
from pathlib import Path

import pytest
from stacks.conftest import PROGRAM, functions, stacks_of

from feedline.profiler import proc
from feedline.profiler.store.manifest import Manifest
from feedline.profiler.store.stack_format import LOG, helper_of


@pytest.mark.parametrize(
    "method",
    [
        "none",
        "fork",
        *(pytest.param(one, marks=pytest.mark.long) for one in ("spawn", "forkserver")),
    ],
)
def test_a_function_of_the_dataset_is_seen_where_it_runs(recorded, tmp_path, method):
    assert recorded(method, "sum").returncode == 0

    stacks = stacks_of(tmp_path / "run")
    makers = {"main"} if method == "none" else {"loader0-worker0", "loader0-worker1"}
    for name in makers:
        planted = [
            stack
            for stack in stacks[name].stacks
            if stack.frames[-1].function == "planted_sum" and stack.phase == "loop"
        ]
        assert sum(stack.samples for stack in planted) >= 3
        assert {stack.frames[-1].line for stack in planted} <= set(range(19, 27))
        assert {"fetch", "__getitem__"} <= functions(stacks[name])
    assert stacks["main"].kind == "main"
    assert {own.refused for own in stacks.values()} == {""}


def test_a_thread_that_the_dataset_starts_is_seen(recorded, tmp_path):
    assert recorded("fork", "thread").returncode == 0

    stacks = stacks_of(tmp_path / "run")
    assert any(
        "planted_sum" in functions(own, "other") for own in stacks.values() if own.kind == "worker"
    )


@pytest.mark.quiet  # with little of a CPU, a process is sampled a few times in all
def test_calls_of_c_are_not_interrupted_and_no_handler_is_called(recorded, tmp_path):
    """``poll`` is never restarted by the kernel, and a signal would end this program."""
    done = recorded("fork", "poll")

    assert (done.returncode, done.stderr) == (0, "")
    stacks = stacks_of(tmp_path / "run")
    assert all("polls_in_c" in functions(own) for own in stacks.values())


def test_of_a_deep_stack_both_ends_are_kept(recorded, tmp_path):
    assert recorded("fork", "deep").returncode == 0

    deep = [
        stack
        for own in stacks_of(tmp_path / "run").values()
        for stack in own.stacks
        if "recurses" in {frame.function for frame in stack.frames[:64]}
    ]
    assert deep
    assert all(len(stack.frames) <= 256 for stack in deep)
    assert all("_worker_loop" in {frame.function for frame in stack.frames} for stack in deep)
    assert "planted_sum" in {stack.frames[-1].function for stack in deep}


def test_a_dataset_that_forks_is_recorded_as_before(recorded, tmp_path):
    done = recorded("fork", "fork")

    assert (done.returncode, done.stderr) == (0, "")
    assert "forks" in functions(stacks_of(tmp_path / "run")["loader0-worker0"])


def test_no_path_of_the_machine_is_kept(recorded, tmp_path):
    assert recorded("spawn", "sum").returncode == 0

    text = (tmp_path / "run/rank0" / LOG).read_text()
    assert str(PROGRAM.parent) not in text
    assert os.path.expanduser("~") + "/" not in text
    assert "\tplanted_sum\t***/train.py\n" in text


def test_turned_off_nothing_is_sampled_and_the_parameters_are_the_same(recorded, tmp_path):
    on = recorded("fork", "sum").stdout
    off = recorded("fork", "sum", options=("--no-stacks",)).stdout

    assert on == off
    (without,) = stacks_of(tmp_path / "run-2").values()
    assert (without.samples, without.refused) == (0, "turned off")
    assert not (tmp_path / "run-2/rank0" / LOG).exists()


def test_a_killed_training_leaves_its_stacks_and_no_helper(warm_python, tmp_path):
    program = warm_python.start(
        "-m", "feedline", "run", "-q", "-o", tmp_path / "run", PROGRAM, "none", "sum",
        folder=tmp_path,
    )  # fmt: skip
    log = tmp_path / "run/rank0" / LOG
    wait_for(lambda: log.exists() and "planted_sum" in log.read_text())
    helper = helper_of(log)
    program.send_signal(signal.SIGKILL)
    program.communicate()

    wait_for(lambda: not proc.started(helper))
    assert "planted_sum" in functions(stacks_of(tmp_path / "run")["main"])
    assert not Manifest.read(tmp_path / "run/rank0").ended


def wait_for(condition) -> None:
    deadline = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.02)


def test_two_recordings_of_one_process_have_stacks_each(warm_python, tmp_path):
    program = tmp_path / "twice.py"
    program.write_text(
        f"import sys; sys.path.insert(0, {str(PROGRAM.parent)!r})\n"
        "import feedline, train\n"
        "for run in ('a', 'b'):\n"
        "    with feedline.record(run):\n"
        "        train.main('fork', 'sum')\n"
    )
    done = warm_python.run(program, folder=tmp_path)

    assert done.returncode == 0
    for run in ("a", "b"):
        assert "planted_sum" in functions(stacks_of(tmp_path / Path(run))["loader0-worker0"])
        assert not (tmp_path / run / "rank0/stacks.targets").exists()
