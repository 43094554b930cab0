"""``feedline check``: limits, exit codes, JUnit, Markdown, annotations, and budgets that are wrong."""

import json
import re
import shutil
from dataclasses import replace
from pathlib import Path
from xml.etree import ElementTree

import pytest
from diff.made_up import stored
from golden.record import RUNS
from hypothesis import given
from hypothesis import strategies as st

from feedline.__main__ import main
from feedline.analysis.convergence.checks import GRAVE, STOPS
from feedline.analysis.diff.budget import Budget, Figure, check_budget
from feedline.analysis.ledger.finding import Finding, Severity
from feedline.analysis.report.document_markdown import _escaped
from feedline.cli.check import text as check_output
from feedline.cli.check.budget_file import _OTHER_CHECKS, _at_most

OVER, NOT_JUDGED, WRONG = 77, 75, 78
RECORDED = Path(__file__).resolve().parents[2] / "docs" / "recorded"
HOLDS = "[at_most]\nstep_mean_s = 1000\n"
EXCEEDED = "[at_most]\nstep_mean_s = 0.000001\n"


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The working directory, with stored runs in it."""
    for name in ("loader", "batch32", "killed", "raises"):
        shutil.copytree(RUNS / name, tmp_path / name)
    shutil.copytree(RUNS / "loader", tmp_path / "good")
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("GITHUB_ACTIONS", raising=False)
    monkeypatch.delenv("GITHUB_STEP_SUMMARY", raising=False)
    return tmp_path


def checked(budget: str, *words: str, run: str = "loader") -> int:
    Path("budget.toml").write_text(budget)
    return main(["check", run, "--budget", "budget.toml", *words])


def outcomes(budget: str, run: str = "loader") -> dict[str, str]:
    """Limit -> outcome."""
    checked(budget, "-q", "--json", "check.json", "-f", run=run)
    return {
        one["id"]: one["outcome"] for one in json.loads(Path("check.json").read_text())["limits"]
    }


def with_finding(rule_id: str):
    """A stored run with this finding, of which no line is known."""
    run = stored("loader")
    found = Finding(rule_id, Severity.LOW, message="it takes long")
    return replace(run, report=replace(run.report, findings=[found]))


def test_a_run_within_its_budget_passes(folder, capsys):
    assert checked(HOLDS + "[at_least]\nsamples_per_s = 0.001\n") == 0
    assert "Within budget: all 2 limits hold (loader)" in capsys.readouterr().out


def test_a_run_that_exceeds_a_limit_fails_with_a_code_of_its_own(folder, capsys):
    assert checked(EXCEEDED) == OVER

    said = capsys.readouterr()
    assert "exceeded  at_most.step_mean_s: " in said.out
    assert "feedline: 1 of 1 limits is exceeded" in said.err


def test_every_kind_of_limit_is_judged(folder):
    most = {"step_median_s": 1e-6, "step_p95_s": 1e-6, "step_mean_s": 1e-6, "input_share": 0.99}
    budget = "[at_least]\nsamples_per_s = 1e9\nsteps_per_s = 1e9\n[at_most]\n" + "\n".join(
        f"{key} = {value}" for key, value in most.items()
    )
    budget += (
        "\n[at_most.stage_s]\nforward = 1e-9\ncompile = 1\n[at_most.stage_share]\nforward = "
        "0.001\n[at_most.sample_cpu_s]\ndecode = 1e-9\n"
    )

    found = outcomes(budget)

    assert found.pop("at_most.input_share") == "passed"
    assert (
        found.pop("at_most.stage_s.compile") == "passed"
    )  # would have been seen, and takes no time
    assert set(found.values()) == {"exceeded"} and len(found) == 8


def test_a_stage_that_did_not_occur_takes_no_share(folder, capsys):
    assert checked("[at_most.stage_share]\ncheckpoint = 0.1\n") == 0

    assert "at_most.stage_share.checkpoint: 0.0 %, at most 10.0 %" in capsys.readouterr().out


def test_what_a_run_does_not_measure_is_unknown_and_does_not_pass(folder, capsys):
    assert (
        checked("[at_most.stage_s]\nfrward = 1\n[at_most.sample_cpu_s]\nmixup = 1\n") == NOT_JUDGED
    )

    said = " ".join(capsys.readouterr().out.split())
    assert (
        "at_most.stage_s.frward: not measured in this run (measured: " in said and "forward" in said
    )


@pytest.mark.parametrize(
    ("run", "budget", "why"),
    [
        ("killed", HOLDS, "was killed"),
        ("raises", HOLDS, "NotJudged"),
        (
            "loader",
            HOLDS.replace("[at_most]", "min_steps = 100000\n[at_most]"),
            "too short to judge",
        ),
    ],
)
def test_a_run_that_cannot_be_judged_does_not_pass(folder, capsys, run, budget, why):
    assert checked(budget, run=run) == NOT_JUDGED

    said = capsys.readouterr().out
    assert "unknown  at_most.step_mean_s" in said
    assert why in said or why == "NotJudged"


def test_a_stage_whose_name_has_share_in_it_is_no_share(folder):
    assert checked("[at_most.stage_s]\nshared_memory = 5\n") == NOT_JUDGED


def test_the_page_names_every_mistake_in_the_setup_that_can_be_forbidden():
    page = (Path(__file__).parents[2] / "docs/jobs/ci.md").read_text()

    assert not [
        rule_id for rule_id in {*GRAVE, *STOPS, *_OTHER_CHECKS} if f"`{rule_id}`" not in page
    ]


@pytest.mark.parametrize("rule_id", ["too_short", "borderline_input", "nothing_trained"])
def test_every_finding_of_a_report_can_be_forbidden(folder, rule_id):
    assert checked(f'[findings]\nnone_of = ["{rule_id}"]\n') == 0


def test_a_finding_that_must_not_be_there_fails_with_its_fix(folder):
    report_findings = outcomes('[findings]\nnone_of_severity = "info"\n')
    assert (
        report_findings == {"findings.none_of_severity=info": "exceeded"}
        or "unknown" in report_findings.values()
    )
    assert (
        outcomes('[findings]\nnone_of = ["late_rank"]\n').popitem()[0]
        == "findings.none_of=late_rank"
    )


def test_the_same_run_passes_against_its_base(folder):
    assert checked('base = "good"\n[than_base]\nsample_cpu = 0.05\n', "--json", "check.json") == 0
    assert json.loads(Path("check.json").read_text())["diff"]["cause"] == ""


def test_a_base_is_found_beside_the_budget_and_not_beside_the_shell(folder):
    Path("ci").mkdir()
    Path("ci/budget.toml").write_text('base = "../good"\n[than_base]\nsample_cpu = 0.05\n')

    assert main(["check", "loader", "--budget", "ci/budget.toml", "-q"]) == 0


@pytest.mark.parametrize(
    ("budget", "message"),
    [
        ("[at_mots]\nstep_mean_s = 1\n", "unknown key at_mots (did you mean at_most?)"),
        (
            "[at_most]\nstep_maen_s = 1\n",
            "unknown key at_most.step_maen_s (did you mean step_mean_s?)",
        ),
        (
            "[at_most]\nstep_mean_s = 'fast'\n",
            "at_most.step_mean_s must be a number of at least 0, not 'fast'",
        ),
        ("[at_most]\nstep_mean_s = -1\n", "at_most.step_mean_s must be a number of at least 0"),
        ("[at_most]\nstep_mean_s = nan\n", "at_most.step_mean_s must be a number of at least 0"),
        ("[at_most]\nstep_mean_s = true\n", "at_most.step_mean_s must be a number of at least 0"),
        ("[at_most]\ninput_share = 10\n", "at_most.input_share is a share: write 0.05 for 5 %"),
        ("[at_most]\nstage_s = 1\n", "stage_s must be a table: [stage_s]"),
        ("at_most = 1\n", "at_most must be a table"),
        ("[findings]\nnone_of_severity = 'hihg'\n", "must be one of info, low, high"),
        ("[findings]\nnone_of_severity = ''\n" + HOLDS, "must be one of info, low, high"),
        ("[findings]\nnone_of_severity = false\n" + HOLDS, "must be one of info, low, high"),
        (
            "[findings]\nnone_of = []\n" + HOLDS,
            "findings.none_of is empty, so it would limit nothing",
        ),
        ("base = []\n" + HOLDS, "base is empty, so it would limit nothing"),
        ("[at_most]\nstep_mean_s = inf\n", "at_most.step_mean_s must be a number of at least 0"),
        (
            f"[at_most]\nstep_mean_s = 1{'0' * 400}\n",
            "at_most.step_mean_s must be a number of at least 0",
        ),
        (f"[at_most]\nstep_mean_s = 1{'0' * 5000}\n", "is not TOML"),
        (f"a = {'[' * 100_000}", "is not TOML"),
        ("[at_least]\nsteps_per_s = 0\n", "at_least.steps_per_s must be above 0"),
        ("[at_most.stage_share]\nwait = 5\n", "at_most.stage_share.wait is a share"),
        (
            "[findings]\nnone_of = ['decode_bond']\n",
            "there is no rule 'decode_bond' (did you mean decode_bound?)",
        ),
        ("[findings]\nnone_of = 3\n", "findings.none_of must be a string or a list of strings"),
        ("[than_base]\nstep = 0.05\n", "[than_base] needs a base"),
        ("base = 'good'\n[than_base]\nstep = 0\n", "than_base.step must be above 0"),
        ("min_steps = 0\n[at_most]\nstep_mean_s = 1\n", "min_steps must be a whole number"),
        ("", "no limit is set"),
        ("min_steps = 3\n", "no limit is set"),
        ("at_most = {", "is not TOML"),
    ],
)
def test_a_wrong_budget_is_refused_with_what_was_meant(folder, capsys, budget, message):
    assert checked(budget) == WRONG
    assert message in " ".join(capsys.readouterr().err.split())


def test_a_budget_that_is_not_there_or_is_no_text_is_refused(folder, capsys):
    Path("budget.toml").write_bytes(b"\xff\xfe\x00")

    assert main(["check", "loader", "--budget", "budget.toml"]) == WRONG
    assert main(["check", "loader", "--budget", "nowhere.toml"]) == WRONG
    assert main(["check", "loader", "--budget", "."]) == WRONG


def test_a_base_that_is_not_there_is_an_error_and_no_pass(folder):
    assert checked('base = "nowhere"\n') == 66


def test_junit_has_a_case_for_each_limit(folder):
    budget = (
        "[at_most]\nstep_mean_s = 1e-6\n[at_least]\nsteps_per_s = "
        "1e-6\n[at_most.sample_cpu_s]\nmixup = 1\n"
    )

    assert checked(budget, "-q", "--junit", "check.xml") == OVER

    suite = ElementTree.parse("check.xml").getroot()[0]
    assert (suite.get("tests"), suite.get("failures"), suite.get("errors")) == ("3", "1", "1")
    kinds = {case.get("name"): [child.tag for child in case] for case in suite}
    assert kinds["at_most.step_mean_s"] == ["failure"]
    assert kinds["at_most.sample_cpu_s.mixup"] == ["error"]
    assert kinds["at_least.steps_per_s"] == ["system-out"]


def test_markdown_is_appended_to_the_summary_of_a_step_and_overwrites_nothing_else(
    folder, monkeypatch
):
    Path("summary.md").write_text("before\n")
    assert checked(HOLDS, "-q", "--markdown", "summary.md") == 73

    monkeypatch.setenv("GITHUB_STEP_SUMMARY", "summary.md")
    assert checked(HOLDS, "-q", "--markdown", "summary.md") == 0

    text = Path("summary.md").read_text()
    assert text.startswith("before\n### feedline: Within budget")
    assert "passed" in text


def test_annotations_are_printed_in_github_actions_at_the_line_of_the_loader(
    folder, monkeypatch, capsys
):
    monkeypatch.setenv("GITHUB_ACTIONS", "true")

    assert checked("[at_most.sample_cpu_s]\ndecode = 1e-9\n") == OVER

    line = next(line for line in capsys.readouterr().out.splitlines() if line.startswith("::"))
    assert line.startswith("::error file=") and "title=feedline" in line and "exceeded" in line
    assert ".py" in line


def test_a_finding_is_annotated_at_its_own_line(folder, monkeypatch, capsys):
    shutil.copytree(RUNS / "without-loader", folder / "without-loader")
    monkeypatch.setenv("GITHUB_ACTIONS", "true")

    assert checked('[findings]\nnone_of = ["made_in_step"]\n', run="without-loader") == OVER

    line = next(line for line in capsys.readouterr().out.splitlines() if line.startswith("::"))
    assert line.startswith("::error file=without_loader.py,line=11,")


def test_a_finding_that_is_not_of_the_input_is_not_annotated_at_the_loader():
    (found,) = check_budget(Budget(rules=("own_code",)), with_finding("own_code"), [], {})
    (of_input,) = check_budget(Budget(rules=("page_faults",)), with_finding("page_faults"), [], {})

    assert (found.about, of_input.about) == ("", "input")


def test_annotations_are_not_printed_elsewhere(folder, capsys):
    assert checked(EXCEEDED) == OVER
    assert "::error" not in capsys.readouterr().out


def test_a_check_that_passes_in_github_actions_prints_no_blank_line_more(
    folder, monkeypatch, capsys
):
    assert checked(HOLDS) == 0
    elsewhere = capsys.readouterr().out
    monkeypatch.setenv("GITHUB_ACTIONS", "true")

    assert checked(HOLDS) == 0
    assert capsys.readouterr().out == elsewhere


@given(st.text(max_size=60))
def test_no_text_ends_an_annotation_or_begins_another(text):
    escaped = check_output._escaped(text, ":,")

    assert not {"\n", "\r", ":", ","} & set(escaped)


@given(st.text(max_size=60))
def test_no_text_is_markup_in_a_markdown_table(text):
    cell = _escaped(text)

    assert "\n" not in cell and "<" not in cell
    assert all(cell[at - 1] == "\\" for at, sign in enumerate(cell) if sign == "|")


def stored_runs():
    """Folders of runs with one training, recorded or made from traces."""
    return sorted(path.parent for path in [*RUNS.glob("*/rank0"), *RECORDED.glob("*/rank0")])


@pytest.mark.parametrize("run", stored_runs(), ids=lambda run: run.name)
def test_without_a_budget_one_is_printed_that_the_run_holds(run, tmp_path, capsys):
    try:
        code = main(["check", str(run)])
    except SystemExit as ended:
        code = int(ended.code or 0)
    said = capsys.readouterr()

    if code:
        assert code in (66, 75) and said.out == ""
        return
    assert f"save it with feedline check {run} > budget.toml" in said.err
    assert not re.search(r"^\[\w+\]\n(\n|\Z)", said.out, re.MULTILINE)  # no empty table
    (tmp_path / "budget.toml").write_text(said.out)
    assert main(["check", str(run), "--budget", str(tmp_path / "budget.toml")]) == 0
    shown = capsys.readouterr().out
    assert shown.startswith("Within budget: all ") and "samples_per_s" in shown or "steps" in shown


@pytest.mark.parametrize(("share", "limit"), [(0.4, ["0.5"]), (0.93, ["0.95"]), (0.98, [])])
def test_a_share_that_leaves_no_room_has_no_limit(share, limit):
    figures = {"input_share": Figure(share, share - 0.01, share + 0.01, "share")}

    assert [line.split()[2] for line in _at_most(figures)] == limit


def test_most_stored_runs_have_a_budget_to_start_from(capsys):
    codes = [main(["check", str(RECORDED / name), "-q"]) for name in ("demo", "healthy", "ddp")]

    assert codes == [0, 0, 0]


def test_results_without_a_budget_are_refused_with_what_to_type(capsys, tmp_path):
    run = RECORDED / "demo"

    assert main(["check", str(run), "--junit", str(tmp_path / "x.xml")]) == 2

    assert f"make one with feedline check {run} > budget.toml" in capsys.readouterr().err
