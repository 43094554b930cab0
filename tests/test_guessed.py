"""Commands as a person guesses them: a run by its name or not named at all, options of other tools,
a forgotten ``--``.
"""

import json
import os
import re
import shlex
import shutil
import time
from pathlib import Path

import pytest

from feedline.__main__ import main
from feedline.analysis.report import document_markdown
from feedline.analysis.report.document import (
    Alert,
    Bar,
    Bars,
    Document,
    Field,
    Fields,
    Headline,
    Note,
    Table,
    Title,
)
from feedline.cli.commands import _parsed

RECORDED = Path(__file__).resolve().parents[1] / "docs" / "recorded"


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The working directory: a script, and two runs below runs/, of which demo is the newest."""
    (tmp_path / "train.py").write_text("open('trained', 'w')")
    for name, begun in (("digits-32", 1), ("demo", 2)):
        run = tmp_path / "runs" / name
        shutil.copytree(RECORDED / name, run)
        path = run / "rank0" / "manifest.json"
        manifest = json.loads(path.read_text())
        for anchor in manifest["anchors"]:
            anchor["time_ns"] = begun * 10**18
        path.write_text(json.dumps(manifest))
    os.utime(tmp_path / "runs" / "digits-32", (time.time() + 10,) * 2)  # a report was written
    monkeypatch.chdir(tmp_path)
    return tmp_path


def said(capfd: pytest.CaptureFixture[str], line: str) -> tuple[int, str, str]:
    """Exit code, standard output, and the last line on standard error."""
    capfd.readouterr()
    try:
        code = main(shlex.split(line))
    except SystemExit as ended:
        code = int(ended.code or 0)
    out, err = capfd.readouterr()
    return code, out, (err.strip().splitlines() or [""])[-1]


def test_a_report_without_a_run_is_of_the_newest_and_says_which(project, capfd):
    code, out, err = said(capfd, "report")

    assert code == 0 and out.startswith("demo ·")
    assert err == "feedline: runs/demo is the newest run"


@pytest.mark.parametrize("line", ["whatif --workers 3", "tune", "check"])
def test_a_question_without_a_run_is_about_the_newest(project, capfd, line):
    capfd.readouterr()
    code = main(shlex.split(line))
    out, err = capfd.readouterr()

    assert code == 0 and out
    assert err.startswith("feedline: runs/demo is the newest run")


def test_without_any_run_the_report_says_how_to_record_one(project, capfd):
    shutil.rmtree("runs")
    (project / "runs" / "notes").mkdir(parents=True)

    code, _, err = said(capfd, "report")

    assert code == 66 and "record one with feedline run train.py" in err


@pytest.mark.parametrize(
    ("words", "names"),
    [
        ("report digits-32", ["run"]),
        ("report --by-rank digits-32", ["run"]),
        ("diff digits-32 demo", ["runs"]),
        ("diff digits-32 -- demo", ["runs"]),
        ("whatif digits-32", ["run"]),
        ("tune digits-32", ["run"]),
        ("check digits-32 --budget b.toml", ["run"]),
        ("scale digits-32 demo", ["runs"]),
        ("converge advise digits-32", ["runs"]),
        ("verify digits-32 --set num_workers=2 -- train.py", ["run_folder"]),
        ("whatif digits-32/parts/2", ["run"]),
    ],
)
def test_a_run_is_found_by_its_name_below_runs(project, words, names):
    args = _parsed(words.split())

    for name in names:
        value = getattr(args, name)
        paths = value if isinstance(value, list) else [value]
        assert all(str(path).startswith("runs/digits-32") for path in paths[:1])


def test_a_run_here_goes_before_one_below_runs(project):
    shutil.copytree("runs/digits-32", "demo")
    (project / "digits-32").mkdir()  # not a run

    assert str(_parsed(["tune", "demo"]).run) == "demo"
    assert str(_parsed(["tune", "digits-32"]).run) == "runs/digits-32"


@pytest.mark.parametrize("name", ["demo", "runs/demo", "{project}/runs/demo"])
def test_a_run_alone_is_shown(project, capfd, name):
    code, out, _ = said(capfd, name.format(project=project))

    assert code == 0 and out.startswith("demo ·")


def test_a_word_that_is_neither_a_command_nor_a_run_is_refused(project, capfd):
    code, _, err = said(capfd, "reprot")

    assert code == 2 and "unknown command 'reprot' (did you mean report?)" in err


@pytest.mark.parametrize("form", ["text", "markdown", "json", "html"])
def test_a_format_is_printed_and_nothing_is_written(project, capfd, form):
    before = sorted(project.rglob("*"))

    code, out, _ = said(capfd, f"report demo --format {form}")

    assert code == 0 and sorted(project.rglob("*")) == before
    if form == "json":
        assert json.loads(out)["run"]["name"] == "demo"
    else:
        begins = {"text": "demo ·", "markdown": "### demo ·", "html": "<!doctype html>"}[form]
        assert out.startswith(begins)


def test_markdown_of_a_run_has_its_fix_its_gain_and_no_html(project, capfd):
    _, out, _ = said(capfd, "report demo --format markdown")

    assert not re.search(r"<[a-z/!]", out)
    assert re.search(r"^- \*\*Fix\*\* num_workers=2", out, re.MULTILINE)
    assert re.search(r"^- \*\*Gain\*\* 81\.0 -> 117 samples/s", out, re.MULTILINE)
    assert re.search(r"^\| input \| 234 ms \| 59 % \|$", out, re.MULTILINE)


def test_html_is_written_into_the_run_and_only_its_path_is_printed(project, capfd):
    code, out, _ = said(capfd, "report demo --html")

    assert (code, out) == (0, "runs/demo/report.html\n")
    written = {path.name for path in (project / "runs" / "demo").iterdir()}
    assert written == {".feedline", "rank0", "report.html"}
    code, out, _ = said(capfd, "report demo --html --json out.json")
    assert (code, out) == (0, "runs/demo/report.html\n")


@pytest.mark.parametrize(
    "line",
    [
        "report demo --json -",
        "report demo --by-rank --json -",
        "diff digits-32 demo --json -",
        "tune demo --json -",
        "whatif demo --workers 2 --json -",
    ],
)
def test_a_dash_prints_json_and_nothing_else(project, capfd, line):
    code, out, _ = said(capfd, line)

    assert code == 0 and isinstance(json.loads(out), dict)
    assert not (project / "-").exists()


@pytest.mark.parametrize(
    ("line", "message"),
    [
        (
            "report --json runs/demo",
            "feedline: runs/demo is a run, and --json needs a file: feedline report runs/demo --json "
            "FILE, or --json - to print it",
        ),
        ("report demo --html --format text", "feedline: --format and --html cannot be combined"),
        ("report demo --by-rank --html", "feedline: --html cannot be combined with --by-rank"),
        ("whatif demo --workers", "feedline whatif: error: --workers needs a value: --workers N"),
        (
            "whatif demo --workers 2 --set num_workers=3",
            "feedline whatif: error: argument --set: num_workers is given twice",
        ),
    ],
)
def test_what_is_missing_or_too_much_is_said_with_what_to_type(project, capfd, line, message):
    code, _, err = said(capfd, line)

    assert code == 2 and err.startswith(message)


@pytest.mark.parametrize(
    ("short", "long"),
    [
        ("--workers 2", "--set num_workers=2"),
        (
            "--workers 2 --prefetch 4 --persistent",
            "--set num_workers=2,prefetch_factor=4,persistent_workers=true",
        ),
    ],
)
def test_a_shortcut_of_whatif_predicts_what_the_setting_does(project, capfd, short, long):
    assert said(capfd, f"whatif demo {short}") == said(capfd, f"whatif demo {long}")


@pytest.mark.parametrize(
    ("line", "program"),
    [
        (
            "verify demo --set num_workers=2 python train.py --epochs 2",
            "python train.py --epochs 2",
        ),
        ("verify demo --set num_workers=2 train.py --set lr=1", "train.py --set lr=1"),
        ("verify --set num_workers=2 -m pkg.train --out {out}", "-m pkg.train --out {out}"),
        (
            "scale --ranks 1,2 torchrun --nproc-per-node 2 train.py",
            "torchrun --nproc-per-node 2 train.py",
        ),
        ("scale train.py --epochs 1", "train.py --epochs 1"),
    ],
)
def test_a_training_without_dashes_is_recognized_behind_the_options(project, line, program):
    args = _parsed(line.split())

    assert args.program == program.split()


@pytest.mark.parametrize(
    ("line", "message"),
    [
        (
            "verify demo python train.py --epochs 2",
            "feedline: nothing to verify: say what to change, as in feedline verify runs/demo --set "
            "num_workers=4 -- python train.py --epochs 2",
        ),
        (
            "verify demo --set num_workers=2",
            "feedline: no training given: add it after `--`, as in feedline verify runs/demo --set "
            "num_workers=2 -- train.py",
        ),
        (
            "scale train.py --ranks 2",
            "feedline scale: error: put `--` before the training: feedline scale -- train.py --ranks "
            "2; or, if --ranks is feedline's: feedline scale --ranks 2 -- train.py",
        ),
        (
            "run --epochs 2 -q train.py --lr 1",
            "feedline run: error: unknown option --epochs; put the script's own options after the "
            "script: feedline run -q train.py --epochs 2 --lr 1",
        ),
        (
            "tune train.py --epochs 2",
            "feedline tune: error: train.py is a training, not a run: record it with `feedline run "
            "-o runs/train train.py --epochs 2`, then `feedline tune train`",
        ),
        (
            "report torchrun train.py --full",
            "feedline report: error: torchrun is a training, not a run: record it with `feedline run "
            "-o runs/train -- torchrun train.py`, then `feedline report train --full`",
        ),
    ],
)
def test_a_forgotten_dash_is_answered_with_the_line_to_type(project, capfd, line, message):
    code, _, err = said(capfd, line)

    assert code in (2, 64) and err == message
    assert not (project / "trained").exists()


def test_a_launcher_needs_no_dashes_under_run(project, capfd):
    code, _, err = said(capfd, "run -q -o new python train.py")

    assert code == 0 and (project / "trained").exists()


@pytest.mark.parametrize(
    ("line", "meant"),
    [
        ("whatif demo --num-workers 3", "--workers"),
        ("tune demo --workers 3", "--max-workers"),
        ("run --num-workers 3 train.py", "--set num_workers=N"),
        ("report demo --verbose", "--full"),
        ("report demo --markdown", "--format markdown"),
        ("check demo --limits b.toml", "--budget"),
        ("scale --gpus 2 -- train.py", "--ranks"),
        ("tune demo --cpus 3", "--cores"),
        ("compare --bs 8", "--batch-size"),
        ("probe --dataset photos", "--data"),
        ("report demo --silent", "--quiet"),
        ("diff demo demo --threshold 0.1", "--min-change"),
        ("verify demo --repeats 3", "--pairs"),
    ],
)
def test_an_option_of_another_name_is_suggested_by_its_meaning(project, capfd, line, meant):
    code, _, err = said(capfd, line)

    assert code == 2 and f"(did you mean {meant}?)" in err


def test_every_block_of_a_document_is_markdown_in_which_its_text_does_not_act():
    nasty = "a|b `c` <b>d</b> *e*\n# f @g"
    document = Document(
        (
            Title((nasty, "2 steps")),
            Alert(nasty),
            Headline(nasty, nasty),
            Fields((Field("Fix", nasty, "train.py:3"), Field("More", "a `b` | c", copied=True))),
            Bars((Bar(nasty, ("1 ms",), 0.5), Bar("x", (), 0.1)), ("time",)),
            Table(((nasty, "1"), ("x", "2")), ("what", "n"), right=frozenset({1}), label="Also"),
            Note("1. not a list"),
        )
    )

    text = document_markdown.render(document)

    assert "<" not in text and "@" not in text
    assert text.count("\n#") == 0 and "1\\. not a list" in text
    tables = [line for line in text.splitlines() if line.startswith("|")]
    assert {len(re.findall(r"(?<!\\)\|", line)) for line in tables} == {3}
    assert "- **More** ``a `b` | c``" in text and "|---|--:|" in text
