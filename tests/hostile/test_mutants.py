"""A sample of benchmarks/fuzz_runs.py, whose seeds are fixed; and what is below it, should an error of ours be left."""

import subprocess
import sys

import pytest
from hostile.conftest import FUZZ

from feedline.__main__ import main
from feedline.analysis.explain import reports_of_run


@pytest.mark.parametrize("mutants", [16, pytest.param(400, marks=pytest.mark.long)])
def test_mutants_end_in_a_report_or_one_line(bases, mutants):
    done = subprocess.run(
        [sys.executable, str(FUZZ), "--bases", str(bases), "--mutants", str(mutants)],
        capture_output=True,
        text=True,
        timeout=280,
    )

    assert done.returncode == 0, done.stdout + done.stderr
    assert f"seeds 0 to {mutants - 1}: " in done.stdout


def fails(*_: object, **__: object) -> None:
    raise TypeError("two\nlines")


def test_an_error_of_our_own_is_one_line_that_asks_for_a_report(finished, monkeypatch, capsys):
    monkeypatch.delenv("FEEDLINE_TRACEBACK")
    monkeypatch.setattr(reports_of_run, "measure", fails)

    code = main(["report", str(finished)])

    said = capsys.readouterr().err
    assert (code, said.count("\n")) == (70, 1)
    assert (
        "cannot be analyzed (TypeError: two lines): please report it" in said
        and f"FEEDLINE_TRACEBACK=1 feedline report {finished}" in said
    )


def test_with_tracebacks_it_is_python_s(finished, monkeypatch):
    monkeypatch.setattr(reports_of_run, "measure", fails)

    with pytest.raises(TypeError):
        main(["report", str(finished)])
