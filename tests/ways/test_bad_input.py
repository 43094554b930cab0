"""Processes that feedline cannot get into, or that end oddly: the training stays as it is, what is
seen is recorded, the rest is named.
"""

import json
import re
import time
from pathlib import Path

import pytest
from ways.bench import Bench, Outcome, Rank, recorded

BLIND = "no training step was made|never made a training step"


@pytest.fixture
def bench(tmp_path, warm_python):
    return Bench(tmp_path, warm_python)


def both(bench: Bench, plain: str, command: str, warm: bool = False) -> Outcome:
    """What the command did under feedline, after seeing that it did the same without.

    Feedline speaks, as it does by default.
    """
    without = bench.outcome(plain, warm)
    bench.work.rename(bench.work.with_name("plain"))
    ours = bench.outcome(command, warm)
    assert (ours.code, ours.out) == (without.code, without.out), ours.err
    assert ours.said == without.said
    return ours


def seen(run: Path) -> list[Rank]:
    return sorted(rank for ranks, _ in recorded(run) for rank in ranks if rank.steps)


def true(outcome: Outcome) -> list[Rank]:
    return sorted(rank for ranks in outcome.trainings.values() for rank in ranks)


def check_named(outcome: Outcome, run: Path, command: str) -> None:
    """Who trained and was not recorded is named, and it is not said that there was no training."""
    missed = {rank.pid for rank in true(outcome)} - {rank.pid for rank in seen(run)}
    words = " ".join(outcome.err.split())
    for pid in missed:
        assert re.search(rf"\b{pid}\b", words), (pid, words)
        assert command in words, words
    if missed:
        assert not re.search(BLIND, words), words


@pytest.mark.long
@pytest.mark.parametrize("how", ["empty", "PYTHONPATH", "-I", "-E", "-S"])
def test_a_child_that_hides_is_recorded_or_named(bench, how):
    ours = both(bench, f"python hides.py {how}", f"feedline run hides.py {how}")

    check_named(ours, bench.run_folder, "alone.py")


@pytest.mark.long
def test_a_sitecustomize_of_the_users_own_runs_in_every_process(bench):
    command = "customized_child.py twice"
    ours = both(
        bench,
        f"PYTHONPATH=customized python {command}",
        f"PYTHONPATH=customized feedline run {command}",
    )

    assert ours.out.count("customized") == ours.out.count("customized yes A user's own.") == 2
    assert seen(bench.run_folder) == true(ours)


@pytest.mark.long
def test_two_of_64_processes_train_and_the_others_are_left_out(bench):
    ours = both(bench, "python tree.py 0 0", "feedline run tree.py 0 0")

    assert len([line for line in ours.out if line.startswith("leaf")]) == 54
    assert seen(bench.run_folder) == true(ours) != []
    assert len(recorded(bench.run_folder)) == 2


@pytest.mark.long
def test_a_process_that_starts_feedline_itself_is_recorded_where_it_says(bench):
    ours = both(bench, "python nests.py", "feedline run nests.py feedline")

    inner, outer = (ours.trainings[name] for name in ("inner", "outer"))
    assert seen(bench.run_folder.with_name("inner")) == inner
    assert seen(bench.run_folder) == outer


@pytest.mark.long
def test_feedline_asked_for_twice_records_once(bench):
    ours = both(bench, "python train.py", "FEEDLINE=1 feedline run -- python train.py")

    assert seen(bench.run_folder) == true(ours)
    assert not list((bench.work / "runs").glob("*"))


@pytest.mark.long
def test_a_child_that_outlives_its_parent_is_recorded_to_its_end(bench):
    plain = bench.outcome("python outlives.py")
    wait_for(bench.work / "said" / "child-0.json")
    bench.work.rename(bench.work.with_name("plain"))

    ours = bench.outcome("feedline run outlives.py")

    said = wait_for(bench.work / "said" / "child-0.json")
    assert (ours.code, ours.out) == (plain.code, plain.out) == (0, [])
    assert not re.search(BLIND, " ".join(ours.err.split())), ours.err
    wait_for_end(said["pid"])
    assert seen(bench.run_folder) == [Rank(0, said["steps"], said["samples"], said["pid"])]


@pytest.mark.long
def test_a_child_that_may_not_write_the_run_folder_trains_and_is_named(bench):
    ours = both(bench, "python may_not_write.py", "feedline run may_not_write.py")

    bench.run_folder.chmod(0o755)
    assert "Traceback" not in ours.err
    check_named(ours, bench.run_folder, "train.py")


@pytest.mark.parametrize(
    "command", ["feedline run", pytest.param("feedline run -- python", marks=pytest.mark.long)]
)
def test_children_whose_parent_is_killed_are_recorded(bench, command):
    plain = bench.outcome("python loses_parent.py", warm=True)
    before = {name: wait_for(bench.work / "said" / f"{name}-0.json") for name in "ab"}
    bench.work.rename(bench.work.with_name("plain"))

    ours = bench.outcome(f"{command} loses_parent.py", warm="--" not in command)

    said = {name: wait_for(bench.work / "said" / f"{name}-0.json") for name in "ab"}
    assert plain.code == -9 and ours.code in (-9, 137)
    assert [one["parameters"] for one in said.values()] == [
        one["parameters"] for one in before.values()
    ]
    for one in said.values():
        wait_for_end(one["pid"])
    assert seen(bench.run_folder) == sorted(
        Rank(0, one["steps"], one["samples"], one["pid"]) for one in said.values()
    )


def wait_for(path: Path) -> dict:
    """What a process that nobody waits for said at its end."""
    until = time.monotonic() + 60
    while not (path.exists() and path.stat().st_size):
        assert time.monotonic() < until, f"no {path.name}"
        time.sleep(0.05)
    time.sleep(0.05)  # it is one write, but not one moment
    return json.loads(path.read_text())


def wait_for_end(pid: int) -> None:
    until = time.monotonic() + 60
    while Path(f"/proc/{pid}/exe").exists():
        assert time.monotonic() < until, f"{pid} does not end"
        time.sleep(0.05)
