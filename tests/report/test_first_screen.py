"""The default report of every stored run and of every made-up one fits on a screen."""

import io
import re
from dataclasses import replace
from pathlib import Path

import pytest
from golden.record import RUNS, STORED
from report.made_up import VARIANTS

import feedline
from feedline.analysis.explain.model import Report
from feedline.analysis.ledger.finding import (
    Finding,
    Gain,
    GainKind,
    PredictedRate,
    Severity,
    predicted_gain,
)
from feedline.analysis.ledger.table import Ledger, LedgerRow, LedgerTable
from feedline.analysis.measure.stages import INPUT_STAGES
from feedline.analysis.report import document_text
from feedline.analysis.report.console import Console
from feedline.analysis.report.document import Bars, Document, Fields, Table
from feedline.analysis.report.terminal import first_screen, places
from feedline.analysis.rules import OTHERWISE, RULES
from feedline.analysis.text.sentences import MAX_BRACKETS, MAX_WORDS

MAX_LINES, MAX_PROSE = 25, 110
MAX_ACTION = 30  # letters: a place and a gain stand on the same line
NAMED_BY_USERS = ("nasty names",)  # whose names are as long as a name may be
FILES = [("Report", "run/report.html"), ("More", "feedline report run --full"), ("Test", "x")]
ONE_TRAINING = [name for name in STORED if name not in ("processes", "sweep")]


def drawn(document: Document, width: int = 80) -> str:
    file = io.StringIO()
    document_text.show(document, Console(file=file, width=width, color_system=None))
    return file.getvalue()


def fits(report: Report) -> None:
    screen = first_screen(report)
    lines = drawn(Document((*screen.blocks, places(FILES)))).splitlines()

    assert len(lines) <= MAX_LINES, "\n".join(lines)
    assert max(map(len, lines)) <= 80
    assert sum(len(said.split()) for said in screen.prose()) <= MAX_PROSE
    for said in screen.prose():
        for sentence in re.split(r"(?<=[.!?]) (?=[A-Z])", said):
            assert len(sentence.split()) <= MAX_WORDS, sentence
            assert len(re.findall(r"(?<!\w)\(", sentence)) <= MAX_BRACKETS, sentence
            assert ";" not in sentence and "…" not in sentence, sentence


@pytest.mark.parametrize("variant", [name for name in VARIANTS if name not in NAMED_BY_USERS])
def test_a_made_up_report_fits(variant: str) -> None:
    fits(VARIANTS[variant]())


@pytest.mark.parametrize("name", ONE_TRAINING)
def test_the_report_of_a_stored_run_fits(name: str, tmp_path: Path) -> None:
    fits(feedline.load(RUNS / name).report)


@pytest.mark.parametrize("name", ONE_TRAINING)
def test_it_holds_the_limit_and_the_stages_of_the_step(name: str) -> None:
    report = feedline.load(RUNS / name).report
    screen = first_screen(report)

    (bars,) = screen.of(Bars)
    assert isinstance(bars, Bars)
    assert sum(row.share for row in bars.rows if not row.inside) == pytest.approx(1, abs=0.02)
    largest_first = [row.share for row in bars.rows if row.name != "the rest" and not row.inside]
    assert largest_first == sorted(largest_first, reverse=True)
    inputs = sum(report.step.stages.get(name, 0.0) for name in INPUT_STAGES)
    shown = [row.share for row in bars.rows if row.name == "input"]
    assert shown in ([], [pytest.approx(inputs / sum(report.step.stages.values()))])
    advice = [field.label for block in screen.of(Fields) for field in block.rows]
    assert ("Gain" in advice) == (report.verdict.gain is not None or bool(report.verdict.gives))


@pytest.mark.parametrize(
    ("place", "claims", "shown"),
    [
        ("rows.py:70", ["sample/dataset/cpu"], False),
        ("rows.py:71", [], False),
        ("rows.py:70", ["wait/starved"], True),
        ("rows.py:90", ["sample/dataset/cpu"], True),
        ("train.py:70", ["sample/dataset/cpu"], True),
    ],
)
def test_what_a_second_finding_says_of_the_same_code_is_left_out(
    place: str, claims: list[str], shown: bool
) -> None:
    report = VARIANTS["full"]()
    top, second = report.findings[:2]
    report.findings[:2] = [
        replace(top, place="rows.py:71", claims=["sample/dataset/cpu", "sample/dataset/blocked"]),
        replace(second, place=place, claims=claims),
    ]

    assert (place in drawn(Document(first_screen(report).of(Table)))) == shown


@pytest.mark.parametrize("width", [40, 60, 79])
def test_a_narrow_terminal_loses_no_words(width: int) -> None:
    report = VARIANTS["full"]()
    wide, narrow = (drawn(first_screen(report), each) for each in (80, width))

    assert max(map(len, narrow.splitlines())) <= width
    assert sorted(wide.replace("█", "").split()) == sorted(narrow.replace("█", "").split())


def among_others(*findings: Finding) -> list[str]:
    """Return what is shown below a first finding that takes time, or below these alone."""
    report = replace(VARIANTS["full"](), findings=[*findings], convergence=None)
    return [cell for table in first_screen(report).of(Table) for row in table.rows for cell in row]


def test_every_finding_that_asks_for_a_change_names_it_in_few_words() -> None:
    # what is said of a run where no cause is known asks for none, as a device that computes
    stating = {rule.rule_id for rule in [*RULES, *OTHERWISE] if rule.states is not None}
    for rule in RULES:
        assert rule.action or rule.rule_id in stating, rule.rule_id
        assert len(rule.action) <= MAX_ACTION, rule.rule_id
        assert rule.action[:1].islower() or not rule.action, rule.rule_id


def test_a_finding_without_a_change_is_not_listed_among_changes() -> None:
    first = Finding("decode_bound", Severity.HIGH, "slow", fix="Decode faster.", cost_s=0.01)
    unknown = Finding("input_bound_unexplained", Severity.HIGH, "?", fix="x" * 40, cost_s=0.01)

    assert among_others(first, unknown) == []


@pytest.mark.parametrize(("after", "listed"), [(42.8, False), (43.1, False), (44.0, True)])
def test_a_change_that_is_predicted_to_give_nothing_is_not_listed(
    after: float, listed: bool
) -> None:
    first = Finding("blocked", Severity.HIGH, "sleeps", fix="Do not sleep.", cost_s=0.01)
    workers = replace(first, rule_id="too_few_workers", fix="num_workers=9", settings={"n": 9})
    told = PredictedRate(42.8, after, 38.8, 47.2)

    more = replace(workers, predicted=told, gain=predicted_gain(told))
    assert bool(among_others(first, more)) == listed


def test_the_whole_of_a_finding_that_is_told_is_not_told_again() -> None:
    first = Finding(
        "decode_bound", Severity.HIGH, "slow", cost_s=0.01, claims=["sample/decode/cpu"], fix="a"
    )
    whole = replace(
        first,
        rule_id="cpu_saturated",
        claims=["sample/decode/cpu", "sample/dataset/cpu"],
        fix="y" * 40,
    )

    assert among_others(first, whole) == []
    assert "make samples cheaper" in among_others(first, replace(whole, claims=["wait/starved"]))


@pytest.mark.parametrize(
    ("fix", "beside"),
    [
        ("Make train.py:25 faster: its own code takes 71 % of it.", ""),
        ("Make train.py:253 faster: its own code takes 71 % of it.", "train.py:25"),
        ("Spend less CPU time per sample.", "train.py:25"),
    ],
)
def test_a_line_that_the_fix_names_is_not_named_twice(fix: str, beside: str) -> None:
    verdict = replace(VARIANTS["full"]().verdict, fix=fix, place="train.py:25")
    (shown,) = [
        part.aside
        for fields in first_screen(replace(VARIANTS["full"](), verdict=verdict)).of(Fields)
        for part in fields.rows
        if part.label == "Fix"
    ]

    assert shown == beside


@pytest.mark.parametrize(
    ("place", "claims", "told"),
    [
        ("a.py:7", ["other/periodic"], True),
        ("", ["other"], False),
        ("a.py:7", ["optimizer"], False),
    ],
)
def test_what_names_no_line_is_left_out_below_a_line_that_takes_the_same_time(
    place: str, claims: list[str], told: bool
) -> None:
    own = Finding(
        "own_code",
        Severity.HIGH,
        "log() takes most",
        cost_s=0.01,
        claims=["other", "other/periodic"],
        fix="Write less.",
        place=place,
    )
    every_tenth = Finding(
        "periodic_stall", Severity.HIGH, "x", fix="x" * 40, cost_s=0.01, claims=claims
    )

    assert (among_others(own, every_tenth) == []) == told


@pytest.mark.parametrize(("after", "first"), [(300.0, "first "), (150.0, "")])
def test_other_programs_come_first_where_stopping_them_gives_more(after: float, first: str) -> None:
    own, others = (
        Finding(
            rule_id,
            Severity.HIGH,
            "x",
            fix=rule_id * 4,
            cost_s=0.01,
            gain=Gain(GainKind.ABOUT, "samples/s", 100.0, gives),
        )
        for rule_id, gives in (("own_code", 200.0), ("busy_neighbors", after))
    )

    assert f"{first}stop other programs" in among_others(own, others)


def test_nothing_is_told_beside_a_training_that_is_another_one() -> None:
    wrong = Finding("same_data", Severity.HIGH, "the same", fix="Use a sampler.")
    slow = Finding("decode_bound", Severity.HIGH, "slow", fix="x" * 40, cost_s=0.01)

    assert among_others(wrong, slow) == []
    assert "use a faster decoder" in among_others(replace(wrong, severity=Severity.LOW), slow)


def test_beside_the_first_cause_in_a_trace_without_steps_the_second_is_told() -> None:
    """What either costs per step is unknown there."""
    first = Finding("host_bound", Severity.HIGH, "idle", fix="x" * 40)
    second = Finding("exposed_copy", Severity.HIGH, "copies", fix="y" * 40)

    assert among_others(first, second) == ["copy from pinned memory"]


def test_nothing_is_told_beside_what_ends_the_training() -> None:
    ended = Finding("killed_worker", Severity.HIGH, "killed", fix="x" * 40)
    slow = Finding("decode_bound", Severity.HIGH, "slow", fix="y" * 40, cost_s=0.01)

    assert among_others(ended, slow) == []


def test_time_in_no_stage_is_shown_by_what_it_is_spent_on() -> None:
    step = replace(VARIANTS["full"]().step, stages={"forward": 0.05, "other": 0.05}, mean_s=0.1)
    rows = [
        LedgerRow("forward", 0.05),
        LedgerRow("other/user/accuracy", 0.03, place="train.py:7"),
        LedgerRow("other/periodic", 0.015, period=40.0),
        LedgerRow("other", 0.005),
    ]
    ledger = Ledger(LedgerTable("step", 0.1, rows), None)
    report = replace(VARIANTS["full"](), step=step, ledger=ledger, findings=[])

    (bars,) = first_screen(report).of(Bars)
    shown = {row.name: row.share for row in bars.rows}
    assert shown == pytest.approx(
        {"forward": 0.5, "accuracy()": 0.3, "extra every 40 steps": 0.15, "the rest": 0.05}
    )

    unknown = replace(ledger, step=LedgerTable("step", 0.1, [rows[0], LedgerRow("other", 0.05)]))
    (bars,) = first_screen(replace(report, ledger=unknown)).of(Bars)
    shown = {row.name: row.share for row in bars.rows}
    assert shown == pytest.approx({"forward": 0.5, "loop code": 0.5})


def test_lines_of_the_loop_are_named_with_their_file() -> None:
    rows = [
        LedgerRow("forward", 0.05),
        LedgerRow("other/user/lines 141 to 146", 0.05, place="***/training.py:141"),
    ]
    step = replace(VARIANTS["full"]().step, stages={"forward": 0.05, "other": 0.05}, mean_s=0.1)
    ledger = Ledger(LedgerTable("step", 0.1, rows), None)

    (bars,) = first_screen(replace(VARIANTS["full"](), step=step, ledger=ledger, findings=[])).of(
        Bars
    )

    assert [row.name for row in bars.rows] == ["forward", "training.py:141-146"]


def test_beside_a_gain_of_the_whole_run_others_are_of_it_too() -> None:
    """A fifth of the run is steps, which another change makes 1.25 times as fast."""
    whole = Gain(GainKind.AT_MOST, "samples/s of the whole run", 100.0, 480.0)
    top = Finding("evaluation_time", Severity.HIGH, "x", fix="y" * 40, outside_s=9.0, gain=whole)
    steps = Gain(GainKind.PREDICTED, "samples/s", 500.0, 625.0)
    slow = Finding("decode_bound", Severity.HIGH, "x", fix="x" * 40, cost_s=0.01, gain=steps)

    found = among_others(top, slow)

    assert "100 -> 104" in found  # 100 / (1 - 0.2 * 0.2)
    hardly = replace(slow, gain=replace(steps, after=520.0))
    assert among_others(top, hardly) == []


def test_beside_a_gain_of_the_steps_one_of_the_whole_run_says_so() -> None:
    steps = Gain(GainKind.PREDICTED, "samples/s", 500.0, 1250.0)
    top = Finding("decode_bound", Severity.HIGH, "x", fix="x" * 40, cost_s=0.06, gain=steps)
    whole = Gain(GainKind.AT_MOST, "samples/s of the whole run", 370.0, 425.0)
    evaluated = Finding("evaluation_time", Severity.LOW, "x", fix="y" * 40, gain=whole)

    assert "370 -> at most 425 of the whole run" in among_others(top, evaluated)
