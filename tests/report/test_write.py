"""Choosing a format and putting the file in its place."""

import json
import re
import resource
from pathlib import Path

import pytest
from report.made_up import VARIANTS, nasty, report

from feedline.analysis.report import phrases, write
from feedline.analysis.report.html_report import _embedded, _tied, render
from feedline.profiler import message
from feedline.profiler.errors import OutputError

PROFILER = Path(__file__).resolve().parents[2] / "profiler"


@pytest.mark.parametrize(
    ("name", "begins"),
    [
        ("a.html", "<!doctype html>"),
        ("a.HTML", "<!doctype html>"),
        ("a.json", "{\n"),
        ("a.txt", "resnet-0412 ·"),
        ("a.md", "### resnet-0412 ·"),
    ],
)
def test_the_ending_chooses_the_format(tmp_path: Path, name: str, begins: str) -> None:
    write(report(), tmp_path / name)

    assert (tmp_path / name).read_text(encoding="utf-8").startswith(begins)


@pytest.mark.parametrize("name", ["a.pdf", "report"])
def test_an_unknown_ending_is_refused_with_those_there_are(tmp_path: Path, name: str) -> None:
    with pytest.raises(OutputError, match=r"use one of \.html, \.json, \.txt"):
        write(report(), tmp_path / name)

    assert list(tmp_path.iterdir()) == []


def test_a_folder_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(
        OutputError, match=r"cannot write .*missing/a.html \(No such file or directory\)"
    ):
        write(report(), tmp_path / "missing" / "a.html")


def test_a_report_that_does_not_fit_leaves_the_one_before_and_no_rest(tmp_path: Path) -> None:
    path = tmp_path / "a.html"
    path.write_text("the one before")
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (10_000, limits[1]))
    try:
        with pytest.raises(OutputError, match="File too large"):
            write(report(), path)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)

    assert path.read_text() == "the one before"
    assert list(tmp_path.iterdir()) == [path]


@pytest.mark.parametrize("variant", VARIANTS)
def test_the_html_of_a_long_run_stays_below_300_kb(variant: str) -> None:
    assert len(render(VARIANTS[variant]()).encode("utf-8", "backslashreplace")) < 300_000


def test_the_html_names_no_other_place() -> None:
    page = render(report())

    assert "http:" not in page
    assert "https:" not in page
    assert " src=" not in page
    assert "@import" not in page


def test_names_are_escaped_wherever_they_appear() -> None:
    assert '<script>alert("x")' not in render(nasty())


def test_embedded_json_can_neither_end_its_element_nor_begin_another() -> None:
    data = {"</script><!--": "<script>&amp;"}

    text = _embedded(data)

    assert not set("<>&") & set(text)
    assert json.loads(text) == data


def test_a_number_and_its_unit_stay_together() -> None:
    assert (
        _tied("takes 68 % of 12.3 ms in 4 states") == "takes 68\u00a0% of 12.3\u00a0ms in 4 states"
    )


def test_reasons_that_count_as_no_loss_are_those_that_the_recorder_gives() -> None:
    sources = " ".join(path.read_text(encoding="utf-8") for path in PROFILER.rglob("*.py"))
    names = {
        reason: name
        for name, reason in vars(message).items()
        if name.isupper() and isinstance(reason, str)
    }

    assert [
        reason
        for reason in phrases._NO_LOSS
        if not re.search(rf"message\.{names[reason]},?\s*\)", sources)
    ] == []
