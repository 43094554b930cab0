"""``feedline report`` shows a folder that ``feedline attach -o`` wrote as attach showed it."""

import json

import pytest

from feedline.__main__ import main
from feedline.analysis.explain.attached import (
    AttachedProcess,
    AttachedReport,
    SampledProcesses,
    SampledShare,
)
from feedline.analysis.ledger.finding import SHARE, Evidence, Finding, Severity
from feedline.analysis.measure.user_code import CodeLine, UserCode, UserFunction
from feedline.analysis.report.json_report import plain
from feedline.analysis.report.of_attached import read_attached

PROCESSES = [
    AttachedProcess("the main process", 7, "S", 9, 0.1, 0.0, 0.0, 0.0, 0.0, 5, "waits", "a.py:3"),
    AttachedProcess("worker 0", 8, "R", 9, 1.0, 0.0, 1e6, 0.0, 0.0, 5, "runs at data.py:8", "", ""),
]
FUNCTION = UserFunction(
    *("worker", "dataset", "load", "data.py", 8, 0.9, 0.8, 0.95, 0.9, None, "", 0, "json.loads"),
    [CodeLine(8, 0.6, "json.loads")],
)
SEEN = AttachedReport(
    pid=7,
    name="train.py",
    seconds=30.0,
    reader="feedline",
    cost_s=0.1,
    limit="Input-bound: Input takes 92 % of the time.",
    cause="load() takes 90 % of making a sample.",
    fix="Make load() faster, or keep its results.",
    place="data.py:8",
    stuck=False,
    findings=[
        Finding(
            "user_code",
            Severity.HIGH,
            "load() takes 90 % of making a sample",
            [Evidence("function_share", "load(), share of making a sample", 0.9, SHARE)],
            fix_more=["Or more workers: they make batches 99 % of their time."],
            place="data.py:8",
        )
    ],
    sampled=SampledProcesses(
        {"wait": SampledShare(0.92, 0.9, 0.94)}, {"idle": SampledShare(0.1, 0, 0.2)}
    ),
    user_code=UserCode(300, 400, [], [FUNCTION]),
    processes=PROCESSES,
    refused=["Samples/s are unknown from outside."],
)


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "seen").mkdir()
    (tmp_path / "seen" / "attached.json").write_text(json.dumps(plain(SEEN)))
    return tmp_path / "seen"


def test_all_that_was_written_is_read(folder):
    assert read_attached(folder) == SEEN


def test_it_is_printed_as_attach_printed_it(folder, capsys):
    assert main(["report", str(folder)]) == 0

    said = " ".join(capsys.readouterr().out.split())
    assert said.startswith("train.py · process 7 · 1 worker · seen for 30")
    assert "Input-bound: Input takes 92 % of the time." in said
    assert "Or more workers" in said and "data.py:8" in said and "90 % to 94 %" in said


@pytest.mark.parametrize("name", ["x.json", "x.md", "x.txt"])
def test_it_can_be_written_as_text_markdown_and_json(name, folder):
    file = folder.parent / name

    assert main(["report", "-q", str(folder), "-o", str(file)]) == 0

    assert "Input takes 92 %" in file.read_text()


@pytest.mark.parametrize(
    ("options", "code"),
    [(["--html"], 2), (["-o", "x.html"], 73), (["--format", "html"], 2), (["--part", "1"], 2)],
)
def test_what_needs_a_recording_is_refused_with_what_there_is(options, code, folder, capsys):
    assert main(["report", str(folder), *options]) == code
    assert "text, Markdown or JSON" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("text", "code"),
    [("", 65), ("[]", 65), ('{"pid": "x"}', 65), ('{"schema_version": 99}', 76)],
)
def test_a_damaged_or_newer_file_is_refused(text, code, folder, capsys):
    (folder / "attached.json").write_text(text)

    assert main(["report", str(folder)]) == code
    assert "attached.json" in capsys.readouterr().err
