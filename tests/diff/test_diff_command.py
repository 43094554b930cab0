"""``feedline diff``: terminal, HTML and JSON of stored runs and of traces, and what it refuses."""

import json
import shutil
from pathlib import Path

import pytest
from golden.record import RUNS
from traces.kineto_made import kineto

from feedline.__main__ import main


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The working directory, with stored runs in it."""
    for name in ("loader", "batch32", "batch256", "killed", "sweep"):
        shutil.copytree(RUNS / name, tmp_path / name)
    shutil.copytree(RUNS / "loader", tmp_path / "again")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "80")
    return tmp_path


def test_a_copy_of_a_run_does_not_differ_from_it(folder, capsys):
    assert main(["diff", "loader", "again"]) == 0

    said = capsys.readouterr().out
    assert said.startswith("No change in speed beyond noise: ")
    assert "changed" not in said.partition("Notes")[0]
    assert max(map(len, said.splitlines())) <= 80


def test_the_conclusion_comes_first_and_the_json_has_it_too(folder, capsys):
    assert main(["diff", "batch32", "batch256", "--json", "diff.json", "-o", "diff.html"]) == 0

    told, said = json.loads((folder / "diff.json").read_text()), capsys.readouterr().out
    assert " ".join(said.split()).startswith(told["conclusion"])
    assert told["per"] == "sample"
    assert {"id", "before", "after", "ratio", "low", "high", "p", "outcome"} <= set(
        told["quantities"][0]
    )
    assert {"kind": "loader", "name": "batch_size", "before": "8", "after": "64"} in told[
        "settings"
    ]
    page = (folder / "diff.html").read_text()
    assert told["conclusion"].split(". ")[0].split(" ->")[0] in page
    assert "B/A is as measured." in page and "B/A excludes" not in page
    assert (
        "batch_size" in page
        and "<script" in page
        and "http://" not in page.replace("http://www.w3.org", "")
    )


def test_nothing_is_written_into_the_runs(folder):
    before = sorted(folder.rglob("*"))

    assert main(["diff", "-q", "loader", "again"]) == 0

    assert sorted(folder.rglob("*")) == before


def test_several_runs_of_each_are_compared_with_each_other(folder, capsys):
    for name in ("a2", "b1", "b2"):
        shutil.copytree("loader", name)

    assert main(["diff", "loader", "a2", "--", "b1", "b2", "--json", "diff.json"]) == 0

    assert json.loads(Path("diff.json").read_text())["between"] == "measured"
    assert "One run of each" not in capsys.readouterr().out


def test_traces_of_another_tool_are_compared_by_their_steps(folder, capsys):
    for name, stall in (("fast", 0), ("slow", 1)):
        kineto(folder / f"{name}.json", rank=0)
        assert main(["ingest", "-q", "-o", f"runs-{name}", f"{name}.json"]) == 0, stall

    assert main(["diff", "runs-fast", "runs-slow", "--json", "diff.json"]) == 0

    told = json.loads(Path("diff.json").read_text())
    assert {one["group"] for one in told["quantities"]} >= {"step", "stage"}
    assert not [one for one in told["quantities"] if one["outcome"] == "changed"]


@pytest.mark.parametrize(
    ("words", "code", "message"),
    [
        (["loader"], 2, "cannot compare a single run: give a second run folder"),
        (["loader", "again", "killed"], 2, "separate the runs of A from those of B with `--`"),
        (["loader", "loader"], 2, "loader is given twice"),
        (["loader", "again", "--", "./again"], 2, "again is given twice"),
        (["loader", "nowhere"], 66, "nowhere"),
        (["loader", "sweep"], 66, "training runs"),
        (["loader", "again", "-o", "diff.txt"], 73, "as HTML (.html), or as JSON with --json FILE"),
        (
            ["loader", "again", "--min-change", "0"],
            2,
            "expected a share above 0 and below 1, such as 0.05 or 5%, got '0'",
        ),
        (["loader", "again", "--min-change", "nan"], 2, "expected a number, got 'nan'"),
        (["loader", "again", "--min-change", "150%"], 2, "got '150%'"),
    ],
)
def test_what_cannot_be_compared_is_refused(words, code, message, folder, capsys):
    try:
        ended = main(["diff", *words])
    except SystemExit as error:
        ended = error.code

    assert ended == code
    assert message in " ".join(capsys.readouterr().err.split())


def test_an_existing_file_is_kept(folder, capsys):
    Path("diff.html").write_text("mine")

    assert main(["diff", "loader", "again", "-o", "diff.html"]) == 73
    assert Path("diff.html").read_text() == "mine"


def test_a_name_that_is_markup_stays_a_name(folder):
    shutil.copytree("loader", "<b>run[red]")

    assert main(["diff", "loader", "<b>run[red]", "-q", "-o", "diff.html"]) == 0
    assert "<b>run" not in Path("diff.html").read_text()
