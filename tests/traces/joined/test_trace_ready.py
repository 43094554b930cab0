"""``on_trace_ready=feedline.on_trace_ready(dir)`` under the real torch.profiler."""

import errno
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from torch.profiler import ProfilerActivity, profile, schedule

import feedline
from feedline.__main__ import main
from feedline.analysis.traces.kineto.kineto_reader import read_kineto


def profiled(handler, steps: int = 3, repeat: int = 1) -> None:
    """Profile a few steps, and as often as ``repeat`` says hand a trace over."""
    plan = schedule(wait=0, warmup=1, active=steps - 1, repeat=repeat)
    with profile(
        activities=[ProfilerActivity.CPU], schedule=plan, on_trace_ready=handler, acc_events=True
    ) as profiler:
        for _ in range(steps * repeat):
            torch.ones(3).sum()
            profiler.step()


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def test_a_trace_becomes_a_file_that_ingest_takes(tmp_path):
    profiled(feedline.on_trace_ready(tmp_path / "made" / "traces"))

    assert names(tmp_path / "made" / "traces") == ["rank0-3.json.gz"]
    assert "aten::sum" in read_kineto(str(tmp_path / "made" / "traces" / "rank0-3.json.gz")).names
    assert (
        main(
            [
                "ingest",
                "-q",
                str(tmp_path / "made" / "traces" / "rank0-3.json.gz"),
                "-o",
                str(tmp_path / "run"),
            ]
        )
        == 0
    )


def test_a_schedule_that_repeats_gives_files_of_different_names(tmp_path):
    profiled(feedline.on_trace_ready(tmp_path), repeat=2)

    assert names(tmp_path) == ["rank0-3.json.gz", "rank0-6.json.gz"]


def test_no_file_is_ever_replaced(tmp_path):
    for _ in range(3):
        profiled(feedline.on_trace_ready(tmp_path))

    assert names(tmp_path) == ["rank0-3.2.json.gz", "rank0-3.3.json.gz", "rank0-3.json.gz"]


def test_two_processes_that_write_at_once_as_the_same_rank_replace_nothing(tmp_path):
    class Slow:
        step_num = 3

        def export_chrome_trace(self, path):
            profiled(feedline.on_trace_ready(tmp_path))  # meanwhile, by the other one
            Path(path).write_text("slow")

    feedline.on_trace_ready(tmp_path)(Slow())

    assert names(tmp_path) == ["rank0-3.2.json.gz", "rank0-3.json.gz"]
    assert (tmp_path / "rank0-3.2.json.gz").read_text() == "slow"
    assert "aten::sum" in read_kineto(str(tmp_path / "rank0-3.json.gz")).names


def test_a_trace_has_its_name_only_once_it_is_whole(tmp_path):
    seen = []

    class Slow:
        step_num = 3

        def export_chrome_trace(self, path):
            seen.extend(tmp_path.glob("rank*"))
            Path(path).write_text("slow")

    feedline.on_trace_ready(tmp_path)(Slow())

    assert (seen, names(tmp_path)) == ([], ["rank0-3.json.gz"])


def test_a_place_without_second_names_gets_the_first_free_one(tmp_path, monkeypatch):
    def refuse(*_):
        raise OSError(errno.EPERM, "no hard links here")

    class Quick:
        step_num = 3

        def export_chrome_trace(self, path):
            Path(path).write_text("quick")

    monkeypatch.setattr(os, "link", refuse)
    (tmp_path / "rank0-3.json.gz").write_text("theirs")

    feedline.on_trace_ready(tmp_path)(Quick())

    assert names(tmp_path) == ["rank0-3.2.json.gz", "rank0-3.json.gz"]
    assert (tmp_path / "rank0-3.json.gz").read_text() == "theirs"
    assert (tmp_path / "rank0-3.2.json.gz").read_text() == "quick"


def test_the_next_command_is_said_once(tmp_path, capfd):
    profiled(feedline.on_trace_ready(tmp_path), repeat=2)

    said = [line for line in capfd.readouterr().err.splitlines() if line.startswith("feedline:")]
    assert said == [f"feedline: next: feedline ingest {tmp_path}/rank0-3.json.gz"]


def test_ranks_write_files_of_their_own_and_only_the_first_one_speaks(tmp_path, capfd, monkeypatch):
    monkeypatch.setenv("WORLD_SIZE", "4")
    for rank in ("0", "3"):
        monkeypatch.setenv("RANK", rank)
        profiled(feedline.on_trace_ready(tmp_path))

    assert names(tmp_path) == ["rank0-3.json.gz", "rank3-3.json.gz"]
    said = [line for line in capfd.readouterr().err.splitlines() if line.startswith("feedline:")]
    assert said == [f"feedline: next: feedline ingest {tmp_path}/rank*-3.json.gz"]


def test_the_rank_of_torch_distributed_counts_before_that_of_the_environment(tmp_path, monkeypatch):
    monkeypatch.setenv("RANK", "3")
    monkeypatch.setenv("WORLD_SIZE", "4")
    torch.distributed.init_process_group(
        "gloo", store=torch.distributed.HashStore(), rank=0, world_size=1
    )
    try:
        profiled(feedline.on_trace_ready(tmp_path))
    finally:
        torch.distributed.destroy_process_group()

    assert names(tmp_path) == ["rank0-3.json.gz"]


@pytest.mark.parametrize("place", ["a file", "a file/below"])
def test_a_place_that_cannot_be_written_to_is_said_once_and_the_training_goes_on(
    tmp_path, capfd, place
):
    (tmp_path / "a file").write_text("notes")
    profiled(feedline.on_trace_ready(tmp_path / place), repeat=2)

    said = [line for line in capfd.readouterr().err.splitlines() if line.startswith("feedline:")]
    assert len(said) == 1
    assert (
        f"cannot write the trace into {tmp_path / place}" in said[0]
        and ": name another folder" in said[0]
    )
    assert names(tmp_path) == ["a file"]


def test_whatever_torch_raises_stays_outside_the_training_and_leaves_no_half_file(tmp_path, capfd):
    class Broken:
        step_num = 5

        def export_chrome_trace(self, path):
            Path(path).write_text("half")
            raise RuntimeError("no trace")

    feedline.on_trace_ready(tmp_path)(Broken())

    assert "RuntimeError: no trace" in capfd.readouterr().err
    assert names(tmp_path) == []


def test_asking_for_a_handler_imports_no_torch():
    program = (
        "import sys, feedline; feedline.on_trace_ready('x'); assert not {'torch', 'numpy', "
        "'pandas'} & sys.modules.keys()"
    )
    subprocess.run(
        [sys.executable, "-P", "-c", program]
        if sys.version_info >= (3, 11)
        else [sys.executable, "-c", program],
        check=True,
        cwd="/",
    )
