"""What is not a regular file, or lies behind a link, is named and left alone."""

import json
import os
import shutil
import socket
from collections.abc import Callable
from pathlib import Path
from subprocess import CompletedProcess

import pytest
from warm_python import WarmPython

Feedline = Callable[..., CompletedProcess[str]]
OF_FINISHED = ("rank0/manifest.json", "rank0/events.parquet", "rank0/totals.parquet", "rank0/gauges.bin", "rank0/gauges.json",
               "rank0/kineto.json.gz", "ceilings.json")  # fmt: skip
OPTIONAL = (
    "gauges.bin",
    "gauges.json",
    "kineto.json.gz",
)  # the rest of the report is shown without them


@pytest.fixture
def feedline(warm_python: WarmPython, tmp_path: Path) -> Feedline:
    """A command in a process of its own, which may take a minute of CPU."""
    return lambda *words: warm_python.run("-m", "feedline", *words, folder=tmp_path)


def notes(run: Path) -> list[str]:
    """Those of the report."""
    return json.loads((run / "report.json").read_text())["notes"]


def fifo(path: Path) -> None:
    os.mkfifo(path)


def link(path: Path) -> None:
    path.symlink_to("/etc/passwd")


def device(path: Path) -> None:
    try:
        os.mknod(path, 0o20666, os.makedev(1, 5))  # /dev/zero: 5 GB and more
    except PermissionError:  # not root: a link to it is as bad
        path.symlink_to("/dev/zero")


def folder(path: Path) -> None:
    path.mkdir()


def listening(path: Path) -> None:
    here = Path.cwd()
    os.chdir(path.parent)  # a socket's name has at most 107 bytes
    with socket.socket(socket.AF_UNIX) as one:
        one.bind(path.name)
    os.chdir(here)


def hole(path: Path) -> None:
    path.touch()
    os.truncate(path, 1 << 40)


KINDS = (fifo, link, device, folder, listening, hole)


@pytest.mark.parametrize("kind", KINDS)
def test_what_is_not_a_regular_file_is_named_and_not_read(finished, kind, feedline):
    for name in OF_FINISHED:
        file = finished / name
        file.rename(file.with_name("kept"))
        kind(file)

        seen = feedline("report", finished)

        said = seen.stdout + seen.stderr
        if name.endswith(OPTIONAL):
            assert seen.returncode == 0, said
            assert any(file.name in note for note in notes(finished)), (name, notes(finished))
        else:
            assert file.name in seen.stderr, (name, said)
            assert (seen.returncode, seen.stderr.count("\n")) == (65, 1), said
        shutil.rmtree(file) if file.is_dir() else file.unlink()
        file.with_name("kept").rename(file)


@pytest.mark.parametrize("kind", KINDS)
def test_a_segment_that_is_not_a_regular_file_costs_its_process_only(killed, kind, feedline):
    worker = killed / "rank0" / "segments" / "loader0-worker0.seg"
    worker.unlink()
    kind(worker)

    seen = feedline("report", killed)

    assert seen.returncode == 0
    assert any(worker.name in note for note in notes(killed))


@pytest.mark.parametrize("kind", KINDS)
def test_a_trace_that_is_not_a_regular_file_costs_its_rank_only(traces, kind, feedline):
    trace = traces / "rank1" / "trace.parquet"
    trace.unlink()
    kind(trace)

    seen = feedline("report", traces)

    assert seen.returncode == 0
    assert any(note.startswith("rank 1: ") and "trace.parquet" in note for note in notes(traces))


@pytest.mark.parametrize(
    "command", [("report",), ("report", "--by-rank"), ("converge", "advise"), ("scale",)]
)
def test_the_folder_of_a_rank_may_not_be_a_link(bases, tmp_path, command, feedline):
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "rank0").symlink_to(bases / "loader" / "rank0")

    seen = feedline(*command, tmp_path / "run")

    assert seen.returncode == 65
    assert "rank0 is a symbolic link" in seen.stderr


def test_the_folder_of_the_segments_may_not_be_a_link(killed, tmp_path, feedline):
    segments = killed / "rank0" / "segments"
    segments.rename(tmp_path / "elsewhere")
    segments.symlink_to(tmp_path / "elsewhere")

    seen = feedline("report", killed)

    assert seen.returncode == 65
    assert "segments is a symbolic link" in seen.stderr


def test_the_run_folder_itself_may_be_named_through_a_link(finished, tmp_path, feedline):
    (tmp_path / "latest").symlink_to(finished)

    assert feedline("report", tmp_path / "latest").returncode == 0


def test_ceilings_that_the_user_names_and_that_are_missing_are_not_found(finished, feedline):
    seen = feedline("report", finished, "-q", "--ceilings", "nope.json")

    assert (seen.returncode, seen.stdout) == (66, "")
    assert "--ceilings: nope.json not found: create it with `feedline probe -o nope" in seen.stderr


def test_ceilings_that_the_user_names_may_be_a_link(finished, tmp_path, feedline):
    (tmp_path / "mine.json").symlink_to(finished / "ceilings.json")

    seen = feedline("report", finished, "-q", "--ceilings", tmp_path / "mine.json")

    assert (seen.returncode, seen.stderr) == (0, "")
