"""Processes that are killed: at most the record in flight is lost, and the report says that the run
was cut.
"""

import os
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from faults.conftest import kill_tree

from feedline.profiler.events import Stage
from feedline.profiler.samplers.processes import descendants
from feedline.profiler.store.trainings import open_run

FEEDLINE = [sys.executable, "-m", "feedline"]


def wait_for(happened: Callable[[], bool], seconds: float = 60) -> None:
    deadline = time.monotonic() + seconds
    while not happened():
        assert time.monotonic() < deadline, "it did not happen in time"
        time.sleep(0.005)


def recorded_samples(run: Path) -> int:
    """Samples in the batches that workers wrote down."""
    return sum(
        int(worker.batches["samples"].sum())
        for worker in open_run(run).ranks[0].processes
        if worker.is_worker
    )


def check_updates(report: dict, logged: int) -> None:
    """Each update that the program has seen the end of is there, and the next one at most."""
    steps = report["throughput"]["steps"]
    assert logged <= steps <= logged + 1
    stages = report["step"]["stages"]
    assert sum(stages.values()) == pytest.approx(report["step"]["mean_s"], rel=0.01)
    assert min(stages[stage] for stage in ("forward", "backward", "optimizer")) > 0


def test_the_training_process_is_killed(workshop):
    process = workshop.start_warm(workshop.training(), 4000)
    wait_for(lambda: workshop.lines("updates") >= 40)
    process.kill()
    process.communicate()
    logged = workshop.lines("updates")

    report = workshop.report_again()

    assert report["run"]["state"] == "cut"
    assert report["run"]["exit_code"] is None
    assert any("figures cover the run until then" in note for note in report["notes"])
    check_updates(report, logged)
    assert report["workers"]["processes"] == 2


def test_a_running_training_is_shown_and_not_disturbed(workshop):
    process = workshop.start_warm(workshop.training(), 2400)
    wait_for(lambda: workshop.lines("updates") >= 40)

    before = workshop.lines("updates")
    live = workshop.report_again()
    after = workshop.lines("updates")

    assert live["run"]["state"] == "live"
    assert before <= live["throughput"]["steps"] <= after + 1
    _, errors = process.communicate(60)
    assert process.returncode == 0, errors
    report = workshop.report()
    assert (
        report["run"]["state"],
        report["throughput"]["steps"],
        report["throughput"]["samples"],
    ) == ("finished", 1200, 4800)


def test_a_worker_is_killed(workshop):
    process = workshop.start(
        *FEEDLINE,
        "run",
        "-q",
        "-o",
        workshop.run,
        "--json",
        workshop.json,
        workshop.training(),
        4000,
    )
    wait_for(lambda: workshop.lines("updates") >= 40)
    workers = [
        child
        for child in descendants(process.pid)
        if b"feedline" in Path(f"/proc/{child}/cmdline").read_bytes()
    ]
    assert len(workers) == 2
    os.kill(workers[0], signal.SIGKILL)
    made = workshop.lines("samples")
    output, errors = process.communicate(timeout=60)

    assert (process.returncode, output) == (1, "")
    assert "is killed by signal: Killed" in errors  # torch's own words
    report = workshop.report()
    assert (report["run"]["state"], report["run"]["exit_code"]) == ("finished", 1)
    check_updates(report, workshop.lines("updates"))
    assert report["workers"]["processes"] == 2
    assert recorded_samples(workshop.run) >= made - 2 * 4  # each worker had one batch of 4 in hand


@pytest.mark.long
def test_a_whole_torchrun_is_killed(workshop):
    script = workshop.write(
        "train.py",
        (Path(__file__).parent.parent / "programs" / "sources" / "ddp.py")
        .read_text()
        .replace("range(2)", "range(999)"),
    )
    torchrun = [
        sys.executable,
        "-m",
        "torch.distributed.run",
        "--standalone",
        "--nproc-per-node",
        "2",
    ]
    agent = workshop.start(*torchrun, "-m", "feedline", "run", "-q", "-o", workshop.run, script)
    wait_for(
        lambda: (
            (workshop.run / "rank1" / "segments" / "main.seg").exists()
            and agent.stdout.readline().startswith("epoch 3")
        )
    )
    kill_tree(agent.pid)
    agent.wait()

    report = workshop.report_again()

    assert report["run"]["state"] == "cut"
    assert {name: rank["state"] for name, rank in report["ranks"].items()} == {
        "0": "cut",
        "1": "cut",
    }
    assert {
        note.split()[1] for note in report["notes"] if "figures cover the run until then" in note
    } == {"0", "1"}
    for rank in report["ranks"].values():
        assert rank["steps"] >= 4 * 6
        assert sum(rank["stages"].values()) == pytest.approx(rank["mean_s"], rel=0.01)


def test_one_rank_is_killed_and_the_other_still_reports(workshop):
    script = workshop.write(
        "train.py",
        """
        import os, signal, time, torch
        model = torch.nn.Linear(4, 1)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        for step in range(20):
            model(torch.randn(8, 4)).mean().backward()
            optimizer.step()
            if os.environ["RANK"] == "1" and step == 10:
                os.kill(os.getpid(), signal.SIGKILL)
        """,
    )
    for rank in ("1", "0"):
        environment = {**os.environ, "RANK": rank, "WORLD_SIZE": "2", "OMP_NUM_THREADS": "1"}
        done = workshop.recorded_warm(script, options=("-q",), environment=environment)
        assert done.returncode == (0 if rank == "0" else -signal.SIGKILL), done.stderr

    report = workshop.report()
    assert {name: (rank["steps"], rank["state"]) for name, rank in report["ranks"].items()} == {
        "0": (20, "finished"),
        "1": (11, "cut"),
    }
    assert [note for note in report["notes"] if "figures cover the run until then" in note][
        0
    ].startswith("rank 1 ")


def test_records_are_in_the_folder_the_moment_they_are_made(workshop):
    script = workshop.write(
        "train.py",
        """
        import os, torch
        model = torch.nn.Linear(4, 1)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        for _ in range(30):
            model(torch.randn(8, 4)).mean().backward()
            optimizer.step()
        os.kill(os.getpid(), 9)
        """,
    )

    done = workshop.recorded_warm(script)

    assert (done.returncode, done.stderr) == (-9, "")
    main = open_run(workshop.run).ranks[0].main
    assert len(main.of(Stage.OPTIMIZER)) == 30
    report = workshop.report_again()
    assert (report["run"]["state"], report["throughput"]["steps"]) == ("cut", 30)
