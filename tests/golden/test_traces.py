"""Reports of traces, made-up and real ones: no number moves, a text that changes shows how, and
every figure is of one basis.
"""

import re

import pytest
from golden.pinned import Pinned
from golden.visible import visible_text
from needs import real_traces
from text.breath import long_sentences, of_report
from traces.one_basis import one_basis, reported
from traces.trainings_made import MADE, REAL


def named(what: str) -> str:
    """A name for files."""
    return re.sub("[^a-z0-9]+", "-", what.removesuffix(".gz").removesuffix(".json").lower()).strip(
        "-"
    )


@pytest.fixture
def compare(pinned: Pinned, tmp_path, monkeypatch, capsys):
    """Compare the report of traces with the stored one of this name."""

    def compared(name: str, paths: list[str]) -> None:
        monkeypatch.chdir(tmp_path)
        told, short, full = reported(paths, tmp_path, capsys)
        one_basis(told, short, full)
        assert not [problem for one in of_report(told) for problem in long_sentences(one)]
        pinned.numbers(name, told)
        pinned.text(f"{name}.terminal", f"{short}\n{full}")
        pinned.text(f"{name}.html", visible_text((tmp_path / "run" / "report.html").read_text()))

    return compared


@pytest.mark.parametrize("kind", MADE)
def test_the_report_of_a_made_up_trace_is_what_it_was(kind, compare, tmp_path):
    compare(named(f"made up: {kind}"), MADE[kind](tmp_path))


@pytest.mark.parametrize("pattern", REAL)
def test_the_report_of_a_real_trace_is_what_it_was(pattern, compare):
    compare(named(pattern), list(map(str, real_traces(pattern))))
