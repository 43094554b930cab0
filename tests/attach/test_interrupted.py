"""A recorded training that hangs and is interrupted says what ``feedline attach`` says of it."""

import json
import os
import signal
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path

import numpy as np
import pytest
from attach.attaching import PROGRAMS, WITHOUT_US
from attach.test_standstill import line_of

from feedline.profiler.samplers.gauge_file import GaugeLegend, GaugeWriter
from feedline.profiler.samplers.gauge_reader import read_gauges
from feedline.profiler.samplers.processes import descendants

HANGS_S = 6.0
SPINS_S = 12.0
RANKS = ("-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2")


def recorded(start, folder: Path, *words: object) -> "subprocess.Popen[str]":
    """``feedline run`` of a program that has begun to hang."""
    return start("-m", "feedline", "run", "-q", "-o", folder / "run", *words)


def interrupt(program: "subprocess.Popen[str]", number: int = signal.SIGINT) -> None:
    """Ctrl-C, as a terminal sends it: to all. Who does not listen is killed."""
    for pid in [program.pid, *descendants(program.pid)]:
        send(pid, number)
        send(pid, signal.SIGCONT)
    time.sleep(3)
    for pid in descendants(program.pid):
        if b"hangs.py" in Path(f"/proc/{pid}/cmdline").read_bytes():
            send(pid, signal.SIGKILL)
    program.communicate(timeout=60)


def send(pid: int, number: int) -> None:
    with suppress(ProcessLookupError):
        os.kill(pid, number)


def report_of(folder: Path) -> dict:
    """What ``feedline report`` says of the run folder, with what it prints."""
    words = ("report", "-f", "--json", folder / "again.json", folder / "run")
    done = subprocess.run(
        [sys.executable, "-m", "feedline", *map(str, words)],
        capture_output=True,
        text=True,
        env=WITHOUT_US,
        cwd=PROGRAMS,
    )
    assert done.returncode == 0, done.stderr
    return {**json.loads((folder / "again.json").read_text()), "printed": done.stdout}


@pytest.mark.parametrize(
    ("kind", "says", "place"),
    [
        ("lock", "waits for worker 0, which waits for a lock", "with LOCK"),
        pytest.param(
            *("stopped", "waits for worker 0, which is stopped", "os.kill("), marks=pytest.mark.long
        ),
        pytest.param(
            *(
                "full queue",
                "waits for worker 0, which waits for room in a full queue",
                "QUEUE.put(2)",
            ),
            marks=pytest.mark.long,
        ),
        pytest.param(
            *("dead", "waits for a queue that stays empty", "QUEUE.get()"), marks=pytest.mark.long
        ),
    ],
)
def test_a_training_that_hung_names_who_waited_for_whom_and_where(
    kind, says, place, start, tmp_path
):
    program = recorded(start, tmp_path, "hangs.py", kind)
    time.sleep(HANGS_S)
    interrupt(program)

    report = report_of(tmp_path)

    verdict = report["verdict"]
    assert verdict["finding"] == report["findings"][0]["cause"] == "standstill"
    assert verdict["limit"].startswith("No step for ")
    assert verdict["cause"] == f"The main process {says} at {line_of(place)}."
    assert verdict["place"] == line_of(place)
    assert ("The lock was taken before the fork" in str(report["findings"])) == (kind == "lock")
    assert line_of(place) in report["printed"]
    assert "LOCK:" not in str(report), "no line of the source is kept"


@pytest.mark.long
def test_a_training_that_span_without_a_step_names_the_function_that_it_was_in(start, tmp_path):
    program = recorded(start, tmp_path, "hangs.py", "spinning")
    time.sleep(SPINS_S)
    interrupt(program)

    verdict = report_of(tmp_path)["verdict"]

    assert verdict["finding"] == "standstill"
    assert verdict["cause"].startswith("The main process was in batches() at hangs.py:")
    assert verdict["fix"].startswith("Look for a loop there that never ends")
    assert not verdict["gives"]  # what to change is not known


@pytest.mark.long
def test_a_training_that_was_interrupted_soon_was_in_no_endless_loop(start, tmp_path):
    """It may also have validated, drawn figures or saved something."""
    program = recorded(start, tmp_path, "hangs.py", "spinning")
    time.sleep(HANGS_S)
    interrupt(program)

    assert "standstill" not in str(report_of(tmp_path)["findings"])


@pytest.mark.long
def test_a_training_that_crashed_in_something_long_was_in_no_endless_loop(start, tmp_path):
    program = recorded(start, tmp_path, "--", sys.executable, "hangs.py", "spinning")
    time.sleep(SPINS_S)
    training = next(
        pid
        for pid in descendants(program.pid)
        if b"hangs.py" in Path(f"/proc/{pid}/cmdline").read_bytes()
    )
    send(training, signal.SIGSEGV)
    program.communicate(timeout=60)

    report = report_of(tmp_path)

    assert report["run"]["ended_by"] == "SIGSEGV"
    assert "standstill" not in str(report["findings"])


def fill(folder: Path, **shares: tuple[float, float]) -> None:
    """Put memory that fills evenly, between these shares of it, in place of what was sampled."""
    path = folder / "run" / "rank0" / "gauges.bin"
    times = np.unique(read_gauges(path).time)
    path.unlink()
    names = ("memory/used", "memory/available", "cgroup/memory", "cgroup/memory_limit")
    GaugeLegend(gauges=[(name, "B") for name in names]).write(path)
    writer = GaugeWriter(path)
    for at, time_ns in enumerate(times.tolist()):
        machine, group = (
            begin + (end - begin) * at / (len(times) - 1)
            for begin, end in (shares.get(name, (0.2, 0.2)) for name in ("machine", "group"))
        )
        values = (machine * 16e9, (1 - machine) * 16e9, group * 8e9, 8e9)
        writer.append(time_ns, list(enumerate(values)))
    writer.close()


@pytest.mark.long
def test_a_training_that_filled_memory_until_it_was_killed_was_in_no_endless_loop(start, tmp_path):
    """But one is, if memory is nearly full all the time."""
    program = recorded(start, tmp_path, "hangs.py", "spinning")
    time.sleep(SPINS_S + 2)
    for pid in [program.pid, *descendants(program.pid)]:
        send(pid, signal.SIGKILL)
    program.communicate(timeout=60)

    for usual in ({}, {"group": (0.93, 0.93)}, {"machine": (0.93, 0.93)}):
        fill(tmp_path, **usual)
        verdict = report_of(tmp_path)["verdict"]
        assert verdict["finding"] == "standstill", usual
    for whose, who in (
        ("machine", "the machine used 15.8 GB"),
        ("group", "its control group used"),
    ):
        fill(tmp_path, **{whose: (0.3, 0.99)})
        report = report_of(tmp_path)
        assert "standstill" not in str(report["findings"])
        assert f"Probably memory was full: at last, {who}" in report["printed"].replace("\n", " ")


@pytest.mark.long
@pytest.mark.parametrize("kind", ["ahead", "exception"])
def test_a_rank_that_waited_for_another_is_named_with_its_line(kind, start, tmp_path):
    program = recorded(start, tmp_path, "--", sys.executable, *RANKS, "hangs.py", kind)
    time.sleep(HANGS_S)
    interrupt(program)

    report = report_of(tmp_path)

    assert report["verdict"]["cause"] == (
        f"Rank 1 waits in backward() at {line_of('loss.backward()')}, while rank 0 waits at "
        f"{line_of('time.sleep(1000)')}."
    )
    assert "Rank 1 has begun " in str(report["findings"][0]["more"])


@pytest.mark.long
def test_a_training_that_was_terminated_while_it_hung_says_the_same(start, tmp_path):
    program = recorded(start, tmp_path, "hangs.py", "lock")
    time.sleep(HANGS_S)
    workers = descendants(program.pid)
    send(program.pid, signal.SIGTERM)
    program.wait(timeout=60)
    for pid in workers:  # who waits for a lock does not see that its parent has ended
        send(pid, signal.SIGKILL)

    verdict = report_of(tmp_path)["verdict"]
    assert "which waits for a lock at" in verdict["cause"]
    assert verdict["gives"] == "the training goes on"


@pytest.mark.long
def test_a_training_that_was_interrupted_between_slow_batches_did_not_hang(start, tmp_path):
    program = recorded(start, tmp_path, "slow_dataset.py", 1, "fork", 60, 5)
    time.sleep(HANGS_S)
    interrupt(program)

    assert "standstill" not in str(report_of(tmp_path)["findings"])
