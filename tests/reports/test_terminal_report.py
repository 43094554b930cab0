"""The report in a terminal."""

import io

import pytest
from reports.made_up import VARIANTS, nasty, report, unmeasured, without_steps

from feedline.analysis.reports import to_terminal
from feedline.analysis.reports.console import Console
from feedline.analysis.reports.progress import building
from feedline.analysis.reports.terminal import render


def shown(made, width: int = 80, encoding: str = "utf-8", **options) -> str:
    file = io.TextIOWrapper(io.BytesIO(), encoding=encoding, write_through=True)
    to_terminal(made, Console(file=file, width=width, **options))
    return file.buffer.getvalue().decode(encoding)


@pytest.mark.parametrize("variant", VARIANTS)
@pytest.mark.parametrize("width", [80, 50])
def test_no_line_is_wider_than_the_terminal(variant: str, width: int) -> None:
    assert max(len(line) for line in shown(VARIANTS[variant](), width).splitlines()) <= width


def test_a_wide_terminal_does_not_make_it_wider_than_80_columns() -> None:
    assert max(len(line) for line in shown(report(), 200).splitlines()) <= 80


def test_it_goes_from_the_verdict_to_the_next_command() -> None:
    text = render(report())

    titles = [
        "Decoding in the loader",
        "176 samples/s",
        "Mean step",
        "Why the main process",
        "One sample",
        "Findings",
        "Could not",
        "Notes",
        "Next",
    ]
    places = [text.index(title) for title in titles]
    assert places == sorted(places)
    assert text.splitlines()[-2] == "feedline report runs/resnet-0412 -o report.html"


def test_the_step_names_other_and_its_sum() -> None:
    lines = [line.split() for line in render(report()).splitlines()]

    assert ["other", "1.4", "0.8", "%", "█"] in lines
    assert ["sum", "181.4", "100.0", "%"] in lines


def test_a_finding_has_its_evidence_and_its_fix() -> None:
    text = render(report())

    assert "1. HIGH  oversize_images  costs at most 93.5 ms a step (51.5 %)" in text
    assert "- decode CPU per sample: 7.92 ms" in text
    assert "Fix: store the images near the training size" in text


def test_refused_hooks_are_told_only_where_something_was_lost() -> None:
    text = render(report())

    assert "cv2.imread: cv2 was imported as `from cv2 import imread`" in text
    assert "gpu:" not in text


def test_no_color_code_is_written_to_a_file() -> None:
    assert "\x1b" not in render(report())


def test_color_is_used_in_a_terminal_and_says_nothing_more() -> None:
    colored = shown(report(), force_terminal=True, color_system="standard")

    assert "\x1b[" in colored
    assert "HIGH" in colored


def test_an_escape_sequence_or_markup_in_a_name_does_nothing() -> None:
    text = shown(nasty(), force_terminal=True, color_system=None)

    assert "\x1b[31m" not in text
    assert "\\x1b[31mred" in text
    assert "[bold]q" in text


def test_a_terminal_that_knows_only_ascii_gets_ascii() -> None:
    text = shown(report(), encoding="ascii")

    assert "####" in text
    assert "176 samples/s | 5.51 steps/s" in text


def test_parts_that_are_missing_are_said_in_words() -> None:
    assert "The run never made a training step, so there is nothing to split" in render(without_steps())
    assert "cut: its process was killed" in render(unmeasured())


def test_the_next_command_of_a_run_without_steps_looks_for_the_reason() -> None:
    assert "\nfeedline env\n" in render(without_steps())


def test_progress_shows_each_step_in_a_terminal_and_goes_away() -> None:
    file = io.StringIO()
    with building(Console(file=file, force_terminal=True, width=60), ["reading", "drawing"]) as done:
        done()
        done()

    assert "drawing" in file.getvalue()
    assert "2/2" in file.getvalue()


def test_progress_is_silent_where_nobody_looks() -> None:
    file = io.StringIO()
    with building(Console(file=file), ["reading"]) as done:
        done()

    assert file.getvalue() == ""
