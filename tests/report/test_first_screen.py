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
from feedline.analysis.measure.stages import INPUT_STAGES
from feedline.analysis.report import document_text
from feedline.analysis.report.console import Console
from feedline.analysis.report.document import Bars, Document, Fields, Table
from feedline.analysis.report.first_screen import first_screen, places
from feedline.analysis.sentences import MAX_BRACKETS, MAX_WORDS

MAX_LINES, MAX_PROSE = 25, 110
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
    largest_first = [
        row.share for row in bars.rows if row.name != "smaller stages" and not row.inside
    ]
    assert largest_first == sorted(largest_first, reverse=True)
    inputs = sum(report.step.stages.get(name, 0.0) for name in INPUT_STAGES)
    shown = [row.share for row in bars.rows if row.name == "input"]
    assert shown in ([], [pytest.approx(inputs / sum(report.step.stages.values()))])
    advice = [field.label for block in screen.of(Fields) for field in block.rows]
    assert ("Gain" in advice) == (report.verdict.gain is not None)


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
