"""What a person finds who runs a program that trains several times."""

import json
import os
import shutil
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from report.made_up import VARIANTS

from feedline.__main__ import main
from feedline.analysis.convergence.read_training import read
from feedline.analysis.explain.model import Verdict
from feedline.analysis.ledger.finding import Finding, Severity
from feedline.analysis.report import overview as overviews
from feedline.cli.report import process_reports
from feedline.profiler.errors import RunNotFound
from feedline.profiler.files.own_folders import listed_names
from feedline.profiler.store.trainings import open_run

SWEEP = Path(__file__).parent / "programs" / "sweep.py"
ENVIRONMENT = {**os.environ, "OMP_NUM_THREADS": "1"}


@pytest.fixture(scope="module")
def crashed(tmp_path_factory, warm_python):
    """A folder with a run of two whole trainings and one that raised, and what was said."""
    folder = tmp_path_factory.mktemp("sweep")
    done = warm_python.run(
        "-m",
        "feedline",
        "run",
        "-o",
        "run",
        SWEEP,
        "--crash",
        folder=folder,
        environment=ENVIRONMENT,
    )
    assert done.returncode == 1, done.stderr
    return folder, done.stdout + done.stderr


def report(warm_python, folder, *args):
    done = warm_python.run(
        "-m", "feedline", "report", *args, folder=folder, environment=ENVIRONMENT
    )
    assert done.returncode == 0, done.stderr
    return done.stdout + done.stderr


def test_the_overview_has_a_row_for_each_training(crashed):
    folder, said = crashed
    overview = json.loads((folder / "run" / "report.json").read_text())

    rows = overview["trainings"]
    assert [
        (row["name"], row["model"], row["optimizer"], row["steps"], row["samples"], row["epochs"])
        for row in rows
    ] == [
        ("1", "Sequential", "SGD, lr 0.1", 20, 160, 2.0),
        ("2", "Sequential", "SGD, lr 0.2", 60, 480, 3.0),
        ("3", "Sequential", "SGD, lr 0.3", 4, 32, 0.4),
    ]
    assert [row["exit_code"] for row in rows] == [0, 0, 1]
    outside = overview["outside"]
    inside = sum(row["duration_s"] for row in rows)
    assert outside["before_s"] + sum(outside["between_s"]) + outside[
        "after_s"
    ] + inside == pytest.approx(outside["whole_s"], rel=0.01)
    assert (
        "run · 3 training runs" in said
        and "Training 3 failed with" in said
        and "(exit code 1)" in said
    )
    assert "84 updates" not in said and "Outside the training runs: " in said


def test_each_training_has_a_report_of_its_own(crashed):
    folder, _ = crashed
    for row in json.loads((folder / "run" / "report.json").read_text())["trainings"]:
        page = folder / "run" / row["report"]
        own = json.loads(page.with_suffix(".json").read_text())
        assert own["run"]["name"] == f"run (training {row['name']} of 3)"
        assert own["throughput"]["steps"] == own["convergence"]["updates"] == row["steps"]
        assert f"run (training {row['name']} of 3)" in page.read_text()
        assert f'href="{row["report"]}"' in (folder / "run" / "report.html").read_text()


def test_beside_reports_in_one_page_a_training_that_has_none_is_not_linked():
    report = VARIANTS["full"]()
    rows = [
        overviews.row(str(number), report, Path(f"parts/{number}/report.html")) for number in (1, 2)
    ]

    page = overviews.ENDINGS[".html"](overviews.Overview("sweep", [], rows), [report])

    assert '<a href="#training-1">' in page and "parts/2" not in page


def test_only_pages_that_are_written_are_named(crashed, tmp_path, monkeypatch, capfd):
    shutil.copytree(crashed[0] / "run", tmp_path / "run")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(process_reports, "_MAX_PAGES", 2)

    assert main(["report", "run"]) == 0

    assert "Reports: parts/1/report.html to parts/2/report.html;" in capfd.readouterr().out
    page = (tmp_path / "run" / "report.html").read_text()
    assert 'href="parts/2/report.html"' in page and "parts/3" not in page
    rows = json.loads((tmp_path / "run" / "report.json").read_text())["trainings"]
    assert [row["report"] for row in rows] == ["parts/1/report.html", "parts/2/report.html", ""]
    assert main(["report", "run", "--format", "text"]) == 0
    assert "Reports: " not in capfd.readouterr().out


def test_trainings_without_a_finding_share_only_what_is_said_of_both():
    report = VARIANTS["full"]()
    unknown = Verdict("What limits this run is unknown: no rule applies to it.")
    short = Verdict("The run never made a training step.")
    rows = [
        overviews.row(str(number), replace(report, verdict=verdict), None)
        for number, verdict in enumerate((unknown, short, unknown), 1)
    ]

    said = " ".join(overviews._verdicts(rows))

    assert f"Training runs 1, 3 – {unknown.limit} (Showing training 1.)" in said
    assert f"Training 2 – {short.limit}" in said


def test_the_main_finding_of_a_training_is_that_of_its_verdict():
    """A schedule that counts the wrong steps is told beside what slows the training."""
    slow = VARIANTS["full"]()
    beside = Finding("schedule_in_steps", Severity.HIGH, "the rate falls in steps")
    report = replace(slow, findings=[beside, *slow.findings])

    row = overviews.row("1", report, Path("report.html"))

    assert row.rule_id == slow.verdict.finding == slow.findings[0].rule_id


def test_one_training_can_be_named(crashed, warm_python):
    folder, _ = crashed

    assert "run (training 2 of 3)" in report(warm_python, folder, "run", "--part", "2")
    report(warm_python, folder, "run/parts/2", "-o", "second.txt")
    assert "60 steps" in (folder / "second.txt").read_text()
    assert read(folder / "run" / "parts" / "2").updates == 60


def test_what_wants_one_training_does_not_take_three_for_one(crashed):
    folder, _ = crashed

    with pytest.raises(RunNotFound, match="holds 3 training runs"):
        read(folder / "run")
    with pytest.raises(RunNotFound, match="no training 4"):
        open_run(folder / "run" / "parts" / "4")


def test_the_reports_are_on_feedlines_list(crashed):
    folder, _ = crashed

    assert "parts" in listed_names(folder / "run")
    assert listed_names(folder / "run" / "parts") == {"1", "2", "3"}
    assert listed_names(folder / "run" / "parts" / "3") == {"report.html", "report.json"}


@pytest.mark.long
def test_ranks_that_train_one_model_after_another_are_cut_alike(tmp_path):
    launcher = [
        sys.executable,
        "-P",
        "-m",
        "torch.distributed.run",
        "--standalone",
        "--nproc-per-node",
        "2",
    ]
    command = [*launcher, "-m", "feedline", "run", "-q", "-o", "run", str(SWEEP), "--ranks"]
    done = subprocess.run(
        command, cwd=tmp_path, env=ENVIRONMENT, capture_output=True, text=True, timeout=200
    )
    assert done.returncode == 0, done.stderr[-3000:]

    for row, steps in zip(
        json.loads((tmp_path / "run" / "report.json").read_text())["trainings"],
        (10, 30),
        strict=True,
    ):
        own = json.loads((tmp_path / "run" / row["report"]).with_suffix(".json").read_text())
        assert {rank: figures["steps"] for rank, figures in own["ranks"].items()} == {
            "0": steps,
            "1": steps,
        }
        assert own["comm"]["collectives"][0]["count"] >= 2
        assert not [
            finding for finding in own["convergence"]["checks"] if finding["cause"] == "same_order"
        ]


@pytest.mark.long
def test_two_fits_of_lightning_are_two_trainings_each_with_its_sanity_check(tmp_path):
    program = Path(__file__).parent / "programs" / "lightning_fits.py"
    command = [sys.executable, "-m", "feedline", "run", "-q", "-o", "run", str(program)]
    done = subprocess.run(
        command, cwd=tmp_path, env=ENVIRONMENT, capture_output=True, text=True, timeout=200
    )
    assert done.returncode == 0, done.stderr[-3000:]

    for row, epochs in zip(
        json.loads((tmp_path / "run" / "report.json").read_text())["trainings"], (2, 1), strict=True
    ):
        assert (row["steps"], row["samples"], row["epochs"]) == (12 * epochs, 96 * epochs, epochs)
        own = json.loads((tmp_path / "run" / row["report"]).with_suffix(".json").read_text())
        batches = {loader["role"]: loader["batches"] for loader in own["loaders"]}
        assert batches == {"training": 12 * epochs, "evaluation": 2 + 6 * epochs}
