"""What commands may overwrite: nothing of the user's, and of feedline's own only with -f."""

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from subprocess import PIPE, CompletedProcess, Popen

import pytest
from warm_python import WarmPython

Feedline = Callable[..., CompletedProcess[str]]
FEEDLINE = [sys.executable, "-m", "feedline"]
TRACE = {
    "schemaVersion": 1,
    "traceEvents": [
        {"ph": "X", "cat": "cpu_op", "name": "aten::add", "pid": 1, "tid": 1, "ts": 10, "dur": 5}
    ],
}
PROGRAM = "print('trained')\n"


@pytest.fixture
def feedline(warm_python: WarmPython) -> Feedline:
    """Runs a command in a folder: in a cold Python where it runs a program, which imports no torch."""

    def command(name: str, *arguments: object, folder: Path) -> CompletedProcess[str]:
        if name == "run":
            return subprocess.run(
                [*FEEDLINE, name, *map(str, arguments)],
                cwd=folder,
                capture_output=True,
                text=True,
                timeout=120,
            )
        return warm_python.run("-m", "feedline", name, *arguments, folder=folder)

    return command


def everything(folder: Path) -> dict[str, bytes]:
    return {
        str(path.relative_to(folder)): path.read_bytes()
        for path in folder.rglob("*")
        if path.is_file()
    }


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder of the user's with two traces and a program."""
    (tmp_path / "mine").mkdir()
    for name in ("a", "b"):
        (tmp_path / "mine" / f"{name}.json").write_text(json.dumps(TRACE))
    (tmp_path / "train.py").write_text(PROGRAM)
    return tmp_path


@pytest.mark.parametrize("place", ["mine", "."])
def test_ingest_never_removes_a_folder_with_the_users_files(folder, place, feedline):
    before = everything(folder)

    done = feedline("ingest", "-q", "-f", "-o", place, "mine/a.json", folder=folder)

    assert done.returncode == 73
    assert "is left untouched" in done.stderr or "feedline did not make" in done.stderr
    assert everything(folder) == before


def test_ingest_replaces_a_run_and_not_one_with_a_file_of_the_users(folder, feedline):
    assert feedline("ingest", "-q", "-o", "run", "mine/a.json", folder=folder).returncode == 0
    first = (folder / "run" / ".feedline").stat().st_ino
    assert feedline("ingest", "-q", "-f", "-o", "run", "mine/a.json", folder=folder).returncode == 0
    assert (folder / "run" / ".feedline").stat().st_ino != first
    (folder / "run" / "rank0" / "notes.txt").write_text("mine")

    done = feedline("ingest", "-q", "-f", "-o", "run", "mine/a.json", folder=folder)

    assert done.returncode == 73
    assert "run/rank0/notes.txt, which feedline did not make: move it away" in done.stderr
    assert sorted(path.name for path in folder.iterdir()) == ["mine", "run", "train.py"]


def test_of_two_ingests_at_once_into_one_new_place_one_is_refused(folder):
    command = [*FEEDLINE, "ingest", "-q", "-o", "run", "mine/a.json"]
    both = [Popen(command, cwd=folder, stderr=PIPE, text=True) for _ in range(2)]
    message = [process.communicate(timeout=120)[1] for process in both]

    assert sorted(process.returncode for process in both) in ([0, 73], [0, 0]), (
        message
    )  # both: the second began after the first had ended
    assert (folder / "run" / "rank0" / "trace.parquet").exists()
    assert sorted(path.name for path in folder.iterdir()) == ["mine", "run", "train.py"]


def test_a_run_leaves_reports_and_data_of_the_users_alone(folder, feedline):
    place = folder / "run"
    (place / "rank0").mkdir(parents=True)
    for name in ("rank0/mydata.npy", "report.json", "trace.json.gz"):
        (place / name).write_text("mine")
    before = everything(folder)

    for options in ((), ("-f",)):
        done = feedline("run", *options, "-o", "run", "train.py", folder=folder)
        assert (done.returncode, done.stdout) == (0, "trained\n"), done.stderr
    refused = feedline("run", "-f", "--strict", "-o", "run", "train.py", folder=folder)

    assert refused.returncode == 73
    after = everything(folder)
    assert {name: after[name] for name in before} == before
    assert (folder / "run-2" / "rank0" / "manifest.json").exists() and (folder / "run-3").exists()


def test_a_file_that_json_would_overwrite_stays_and_the_training_runs(folder, feedline):
    (folder / "report.json").write_text("mine")

    done = feedline("run", "-q", "-o", "run", "--json", "report.json", "train.py", folder=folder)

    assert (done.returncode, done.stdout) == (0, "trained\n")
    assert done.stderr == (
        "feedline: --json is ignored: report.json already exists: name another file, or overwrite "
        "it with -f\n"
    )
    assert (folder / "report.json").read_text() == "mine"


def test_no_command_overwrites_what_it_reads_or_records_of_a_run(folder, feedline):
    assert feedline("ingest", "-q", "-o", "run", "mine/a.json", folder=folder).returncode == 0
    (folder / "budget.toml").write_text("[steps]\n")
    os.link(folder / "mine" / "a.json", folder / "also_a.json")
    before = everything(folder)

    for words, why in (
        (("ingest", "-o", "new", "mine/a.json", "--json", "also_a.json"), "is also read"),
        (("check", "run", "--budget", "budget.toml", "--junit", "budget.toml"), "is also read"),
        (("report", "run", "--json", "run/rank0/manifest.json"), "is a part of a recorded run"),
        (("report", "run", "--nccl-log", "mine/b.json", "-o", "mine/b.json"), "is also read"),
    ):
        done = feedline(*words, "-f", folder=folder)
        assert done.returncode == 73 and why in done.stderr, (words, done.stderr)
    done = feedline("run", "-f", "-o", "run-2", "--json", "train.py", "train.py", folder=folder)
    assert (done.returncode, done.stdout) == (0, "trained\n")
    assert "--json is ignored: train.py is also read" in done.stderr

    after = everything(folder)
    assert {name: after[name] for name in before} == before
    (folder / "report.json").write_text("mine")  # named as a result is, but read by nobody
    done = feedline("report", "run", "-q", "-f", "--json", "report.json", folder=folder)
    assert done.returncode == 0 and (folder / "report.json").read_text() != "mine"


def test_a_report_does_not_write_through_links_in_a_run_that_was_received(folder, feedline):
    assert feedline("run", "-q", "-o", "run", "train.py", folder=folder).returncode == 0
    (folder / "treasure").write_text("mine")
    for name in ("report.html", "report.json", "trace.json.gz", ".trace.json.gz"):
        (folder / "run" / name).unlink(missing_ok=True)
        (folder / "run" / name).symlink_to(folder / "treasure")

    done = feedline("report", "run", folder=folder)

    assert "Traceback" not in done.stderr
    assert (folder / "treasure").read_text() == "mine"
    assert all(
        (folder / "run" / name).is_symlink()
        for name in ("report.html", "report.json", "trace.json.gz")
    )


def test_a_link_or_a_folder_is_refused_as_an_output_and_a_pipe_is_written_to(folder, feedline):
    assert feedline("run", "-q", "-o", "run", "train.py", folder=folder).returncode == 0
    (folder / "treasure").write_text("mine")
    (folder / "link.json").symlink_to(folder / "treasure")
    (folder / "folder.json").mkdir()

    for name, what in (("link.json", "a link"), ("folder.json", "a folder")):
        done = feedline("report", "run", "-f", "-o", name, folder=folder)
        assert (done.returncode, done.stderr) == (73, f"feedline: {name} is {what}: name a file\n")
    to_null = feedline("report", "run", "-q", "--json", "/dev/null", folder=folder)
    piped = subprocess.run(
        ["bash", "-c", '"$0" -m feedline report run -q --json /dev/stdout | cat', sys.executable],
        cwd=folder,
        capture_output=True,
        text=True,
    )

    assert (to_null.returncode, os.path.exists("/dev/null"), Path("/dev/null").is_file()) == (
        0,
        True,
        False,
    )
    assert json.loads(piped.stdout)["run"]["name"] == "run", piped.stderr
    (folder / "log").write_text("a line\n")
    subprocess.run(
        ["bash", "-c", '"$0" -m feedline report run -q --json /dev/stdout >> log', sys.executable],
        cwd=folder,
        check=True,
    )
    assert (folder / "log").read_text().startswith("a line\n{")
    assert (folder / "treasure").read_text() == "mine"


def test_two_runs_of_one_second_have_names_of_their_own(folder):
    both = [
        Popen([*FEEDLINE, "run", "-q", "train.py"], cwd=folder, stdout=PIPE, stderr=PIPE, text=True)
        for _ in range(3)
    ]
    ended = [process.communicate(timeout=120) for process in both]

    assert [(process.returncode, out) for process, (out, _) in zip(both, ended, strict=True)] == [
        (0, "trained\n")
    ] * 3, ended
    runs = sorted((folder / "runs").iterdir())
    assert len(runs) == 3
    assert all((run / "rank0" / "manifest.json").exists() for run in runs)


def test_a_file_size_limit_keeps_no_training_from_running(folder):
    limited = [
        "bash",
        "-c",
        'ulimit -f 8; exec "$@"',
        "-",
        *FEEDLINE,
        "run",
        "-q",
        "-o",
        "run",
        "train.py",
    ]

    done = subprocess.run(limited, cwd=folder, capture_output=True, text=True, timeout=120)

    assert (done.returncode, done.stdout) == (0, "trained\n"), done.stderr
    assert done.stderr.count("\n") <= 2 and "Traceback" not in done.stderr


def test_verify_never_removes_files_that_look_like_branches(folder, feedline):
    place = folder / "runs" / "verify"
    place.mkdir(parents=True)
    (place / "my-seed1.csv").write_text("mine")
    (place / "baseline-seed0.log").write_text("mine")
    before = everything(place)

    done = feedline(
        "verify", "-f", "--fix", "warmup=1ep", "-o", place, "--", "train.py", folder=folder
    )

    assert done.returncode == 73
    assert "baseline-seed0.log already exists and was not written by feedline" in done.stderr
    assert everything(place) == before


def test_results_replace_their_own_files_only(folder, feedline):
    table = ("scale", "--throughput", "1=10,2=19", "-o", "out")
    (folder / "out").mkdir()
    (folder / "out" / "notes.txt").write_text("mine")
    assert feedline(*table, folder=folder).returncode == 0
    assert feedline(*table, folder=folder).returncode == 73
    assert feedline(*table, "-f", folder=folder).returncode == 0
    shutil.rmtree(folder / "out")
    (folder / "out").mkdir()
    (folder / "out" / "scale.json").write_text("mine")

    done = feedline(*table, "-f", folder=folder)

    assert done.returncode == 73
    assert "scale.json already exists and was not written by feedline" in done.stderr
    assert everything(folder / "out") == {"scale.json": b"mine"}


def test_ranks_that_overwrite_an_older_run_at_once_come_to_one_folder(folder):
    ranks = (
        'for rank in 0 1 2 3; do RANK=$rank WORLD_SIZE=4 "$0" -m feedline run -q -f -o run '
        "train.py & done; wait"
    )
    for _ in range(2):
        done = subprocess.run(
            ["bash", "-c", ranks, sys.executable],
            cwd=folder,
            capture_output=True,
            text=True,
            timeout=120,
            start_new_session=True,
        )
        assert done.stdout.count("trained") == 4, (
            done.stderr
        )  # four processes write their lines and line ends at once

    assert sorted(path.name for path in folder.iterdir()) == ["mine", "run", "train.py"]
    assert {path.name for path in (folder / "run").glob("rank*")} == {
        "rank0",
        "rank1",
        "rank2",
        "rank3",
    }
