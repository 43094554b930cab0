"""Ctrl-C in every command: one line, exit code 130, nothing half-done in the way of the same
command, no process left.
"""

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from interrupts.terminal import Ended, Terminal, importing

from feedline.analysis.explain.speed_trial import CODES
from feedline.profiler.errors import NotJudged

KEPT = Path(__file__).resolve().parents[2] / "docs" / "recorded" / "demo"
COMMANDS = {
    "env": ["env"],
    "pack": ["pack", "photos", "-o", "store", "--kind", "tar", "--verify"],
    "probe": [
        "probe",
        "--data",
        "photos",
        "--quick",
        "--parts",
        "decode,transport,all_reduce",
        "-o",
        "ceilings.json",
    ],
    "compare": [
        "compare",
        "--data",
        "photos",
        "--loaders",
        "pillow-v1",
        "--workers",
        "2",
        "-o",
        "compared",
        "--json",
        "compared.json",
    ],
    "ingest": [
        "ingest",
        "rank0.json.gz",
        "rank1.json.gz",
        "rank2.json.gz",
        "-o",
        "ingested",
        "--json",
        "ingested.json",
    ],
    "ranks": ["report", "--by-rank", "run", "--json", "ranks.json"],
    "report": ["report", "run", "--json", "report.json"],
    "whatif": ["whatif", "run", "--set", "num_workers=2", "--json", "whatif.json"],
    "tune": ["tune", "run", "-o", "tune.html", "--json", "tune.json"],
    "scale": [
        "scale",
        "--ranks",
        "1,2",
        "-o",
        "scaled",
        "--json",
        "scaled.json",
        "--",
        "train.py",
        "7",
    ],
    "verify": [
        "verify",
        "--fix",
        "lr_rule=linear:5",
        "--seeds",
        "2",
        "--json",
        "trial.json",
        "--",
        "train.py",
        "{seed}",
    ],
    "speed": [
        "verify",
        "--set",
        "num_workers=2",
        "--pairs",
        "2",
        "--steps",
        "4",
        "--json",
        "trial.json",
        "--",
        "train.py",
        "0",
    ],
    "advise": ["converge", "advise", "run", "--json", "advice.json"],
}

ENDED = frozenset(CODES.values())  # 0, or what a trial found


def check(ended: Ended, folder: Path) -> None:
    """What holds after Ctrl-C at any moment."""
    assert ended.left == []
    assert "Traceback" not in ended.out + ended.err, ended.err
    assert [path.name for path in folder.rglob(".feedline-part-*")] == []
    if ended.at_s is None:  # it had ended by then
        assert ended.code in ENDED, ended.err
        return
    assert ended.code in (130, *ENDED), ended.err
    assert len(ended.lines) == (ended.code == 130), ended.err
    others = [
        line
        for line in ended.err.splitlines()
        if line not in ended.lines and not line.startswith("feedline: ")
    ]
    assert others == []


@pytest.mark.parametrize(
    "command", ["env", "pack", "compare", "ingest", "report", "ranks", "tune", "verify"]
)
def test_during_imports_it_is_one_line(command, terminal):
    """Paths that do not exist are found later."""
    ended = terminal.run(*COMMANDS[command], until=importing)

    check(ended, terminal.folder)
    assert (ended.code, ended.out) == (130, "")
    assert os.listdir(terminal.folder) == []


def test_inside_exec_the_exit_code_is_130_as_well(tmp_path):
    """CPython notes that Ctrl-C ended an ``exec`` of text, and at the end of ``python -m`` kills
    its process by SIGINT for it.
    """
    (tmp_path / "caught.py").write_text(
        "import sys\nfrom feedline.__main__ import main\nfrom feedline.cli import commands\n"
        "commands.perform = lambda words: exec('raise KeyboardInterrupt')\nsys.argv = "
        "['feedline', 'env']\nsys.exit(main())\n"
    )
    ended = subprocess.run(
        [sys.executable, "-m", "caught"], cwd=tmp_path, capture_output=True, text=True
    )

    assert (ended.returncode, ended.stderr) == (130, "feedline: interrupted: nothing was written\n")


@pytest.mark.long
def test_a_search_for_settings_leaves_nothing_half_written(terminal):
    """And the same command, again, has its result."""
    shutil.copytree(KEPT, terminal.folder / "run")
    ended = terminal.run(*COMMANDS["tune"], until=1.5)

    check(ended, terminal.folder)
    assert set(os.listdir(terminal.folder)) in ({"run"}, {"run", "tune.html", "tune.json"})
    again = terminal.run(*COMMANDS["tune"], "-f")
    assert again.code == 0 and json.loads((terminal.folder / "tune.json").read_text())["best"]


def folder_of(run: Path) -> Callable[[int], bool]:
    """True once a recording has begun there."""
    return lambda pid: (run / "rank0" / "segments").exists()


def test_pack_continues_where_it_stopped(terminal, images):
    ended = terminal.run(*COMMANDS["pack"], until=lambda pid: (terminal.folder / "store").exists())

    check(ended, terminal.folder)
    again = terminal.run(*COMMANDS["pack"])
    assert (again.code, again.err) == (0, "")
    assert "60 images" in again.out and "verified: 60 of 60" in again.out


@pytest.mark.long
def test_ingest_that_was_interrupted_in_its_report_says_what_makes_it(terminal, traces):
    ended = terminal.run(
        *COMMANDS["ingest"], until=lambda pid: (terminal.folder / "ingested").exists()
    )

    check(ended, terminal.folder)
    assert ended.lines == [
        "feedline: interrupted: ingested holds the traces but no report yet; feedline report "
        "ingested writes it",
    ]
    assert not (terminal.folder / "ingested.json").exists()
    refused = terminal.run(*COMMANDS["ingest"])  # the traces may be others by now
    assert refused.code == 73 and "already exists" in refused.err
    again = terminal.run("report", "ingested", "--json", "ingested.json")
    assert again.code == 0, again.err
    assert list(json.loads((terminal.folder / "ingested.json").read_text())["ranks"]) == [
        "0",
        "1",
        "2",
    ]


@pytest.mark.long
def test_scale_keeps_the_whole_runs_and_goes_on_after_them(terminal, training):
    folder = terminal.folder / "scaled"
    ended = terminal.run(*COMMANDS["scale"], until=folder_of(folder / "ranks2"))

    check(ended, terminal.folder)
    assert ended.lines == [
        "feedline: interrupted: 1 of 2 runs in scaled are complete; run the same command again to "
        "continue with the others",
    ]
    assert sorted(path.name for path in folder.iterdir()) == [
        ".feedline",
        "ranks1",
        "ranks1.log",
        "unfinished.json",
    ]
    first = (folder / "ranks1" / "rank0" / "manifest.json").read_bytes()

    again = terminal.run(*COMMANDS["scale"])

    assert again.code == NotJudged.exit_code, again.err  # each rank trains by itself: no scaling
    assert "did not train together" in again.out
    assert "ranks1: kept from the interrupted command" in again.err
    assert (folder / "ranks1" / "rank0" / "manifest.json").read_bytes() == first
    assert [
        row["point"]["ranks"]
        for row in json.loads((terminal.folder / "scaled.json").read_text())["rows"]
    ] == [1, 2]
    assert not (folder / "unfinished.json").exists()
    refused = terminal.run(*COMMANDS["scale"])
    assert refused.code == 73 and "already exists" in refused.err


@pytest.mark.long
@pytest.mark.timeout(900)
@pytest.mark.parametrize("share", [0.2, 0.5, 0.9])
@pytest.mark.parametrize(
    "command", [name for name in COMMANDS if name not in ("ranks", "whatif", "tune")]
)  # they want other runs
def test_at_any_moment_the_command_that_goes_on_comes_to_its_end_afterwards(
    command, share, terminal, images, traces, recorded
):
    before = set(terminal.folder.rglob("*"))
    whole = terminal.run(*COMMANDS[command], patience_s=280)
    assert whole.code in ENDED, whole.err
    for path in sorted(set(terminal.folder.rglob("*")) - before, reverse=True):
        path.rmdir() if path.is_dir() else path.unlink()

    ended = terminal.run(*COMMANDS[command], until=share * whole.took_s, patience_s=280)

    check(ended, terminal.folder)
    if ended.code == 130:
        named = "feedline report ingested writes it" in ended.err
        again = terminal.run(
            *(["report", "ingested"] if named else COMMANDS[command]), patience_s=280
        )
        assert again.code in ENDED, again.err
        assert again.left == []


@pytest.mark.long
@pytest.mark.timeout(900)
def test_verify_keeps_the_whole_branches_and_trains_none_of_them_again(terminal, training):
    folder = terminal.folder / "runs" / "verify"
    ended = terminal.run(*COMMANDS["verify"], until=folder_of(folder / "baseline-seed1"))

    check(ended, terminal.folder)
    assert ended.lines == [
        "feedline: interrupted: 2 of 4 runs in runs/verify are complete; run the same command "
        "again to continue with the others",
    ]
    assert not (folder / "baseline-seed1").exists() and (folder / "fix-seed0").is_dir()

    again = terminal.run(*COMMANDS["verify"])

    assert again.code in ENDED, again.err
    assert (
        terminal.folder / "trained-0"
    ).read_text() == "again\n" * 2  # the baseline and the fix, once each
    assert len(json.loads((terminal.folder / "trial.json").read_text())["branches"]) == 4


@pytest.mark.long
@pytest.mark.timeout(900)
def test_verify_keeps_the_whole_runs_of_a_trial_of_speed(terminal, training):
    folder = terminal.folder / "runs" / "verify"
    ended = terminal.run(*COMMANDS["speed"], until=folder_of(folder / "changed-2"))

    check(ended, terminal.folder)
    assert ended.lines == [
        "feedline: interrupted: 3 of 5 runs in runs/verify are complete; run the same command "
        "again to continue with the others",
    ]

    again = terminal.run(*COMMANDS["speed"])

    assert again.code in ENDED, again.err
    assert "recorded, unchanged-1, changed-1: kept from the interrupted command" in again.err
    assert [
        run["failed"] for run in json.loads((terminal.folder / "trial.json").read_text())["runs"]
    ] == [""] * 4
    assert not (terminal.folder / "trained-0").exists()


@pytest.mark.long
def test_a_script_that_was_changed_is_not_mixed_with_what_it_was(terminal, training):
    ended = terminal.run(*COMMANDS["scale"], until=folder_of(terminal.folder / "scaled" / "ranks2"))
    assert ended.code == 130
    training.write_text(training.read_text() + "# another training\n")

    again = terminal.run(*COMMANDS["scale"])

    assert again.code == 73
    assert "scaled/ranks1" in again.err and "already exists" in again.err


@pytest.mark.long
def test_a_second_training_that_ignores_sigterm_is_ended_too(tmp_path):
    terminal = Terminal(tmp_path)
    (tmp_path / "train.py").write_text(
        "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); time.sleep(600)\n"
    )

    ended = terminal.run(
        "scale",
        "--ranks",
        "1",
        "--",
        "train.py",
        until=lambda pid: any(tmp_path.glob("runs/*/ranks1/rank0")),
    )

    check(ended, tmp_path)
    assert ended.code == 130
    assert list((tmp_path / "runs").iterdir()) == []  # the folder was made for this
