"""The report in a terminal."""

import io
from dataclasses import replace
from pathlib import Path

import pytest
from reports.made_up import VARIANTS, judged, nasty, refused, report, unmeasured, without_steps

from feedline.analysis.explain.headline import headline
from feedline.analysis.measure.model import Operation
from feedline.analysis.report import to_terminal
from feedline.analysis.report.console import Console
from feedline.analysis.report.progress import building
from feedline.analysis.report.terminal import render

FILES = [
    Path(f"runs/resnet-0412/{name}") for name in ("report.html", "report.json", "trace.json.gz")
]
STAGE = "masking of the tokens that are predicted, per batch"  # as long as a name of a stage may be
COPIED = ("Report", "Next", "More")  # paths and commands are not cut, so that they can be copied


def shown(
    made, width: int = 80, encoding: str = "utf-8", full: bool = False, files=(), **options
) -> str:
    file = io.TextIOWrapper(io.BytesIO(), encoding=encoding, write_through=True)
    to_terminal(made, Console(file=file, width=width, **options), full, files)
    return file.buffer.getvalue().decode(encoding)


@pytest.mark.parametrize("full", [False, True])
@pytest.mark.parametrize("variant", VARIANTS)
@pytest.mark.parametrize("width", [80, 50])
def test_no_line_is_wider_than_the_terminal(variant: str, width: int, full: bool) -> None:
    lines = shown(VARIANTS[variant](), width, full=full).splitlines()

    assert max(len(line) for line in lines if not line.startswith(COPIED)) <= width
    assert [line for line in lines if line != line.rstrip()] == []


def test_all_of_a_report_names_the_programs_own_stages_and_the_operations_in_a_sample() -> None:
    made = report()
    stages = {**made.step.stages, STAGE: 2e-3}
    operations = [Operation("user", STAGE, 1e-3, 9e-4, 1)]
    made = replace(
        made,
        step=replace(made.step, stages=stages),
        workers=replace(made.workers, operations=operations),
    )

    text = "".join(shown(made, full=True).split())

    assert text.count("".join(STAGE.split())) == 2
    assert "loader0:DataLoader" in text and 'sampler="RandomSampler"' in text


def test_a_wide_terminal_does_not_make_it_wider_than_80_columns() -> None:
    assert max(len(line) for line in shown(report(), 200).splitlines()) <= 80


@pytest.mark.parametrize("width", [80, 100, 120])
@pytest.mark.parametrize("variant", VARIANTS)
def test_it_takes_at_most_40_lines(variant: str, width: int) -> None:
    many = replace(
        VARIANTS[variant](),
        notes=[
            f"note {number}, which is as long as a note may be: {'word ' * 40}"
            for number in range(30)
        ],
    )

    assert len(shown(many, width, files=FILES).splitlines()) <= 40


@pytest.mark.parametrize("full", [False, True])
def test_its_last_lines_are_verdict_fix_and_where_the_report_is(full: bool) -> None:
    last = shown(judged(), full=full, files=FILES).splitlines()[-9 if full else -10 :]

    assert last[:8] == [
        "",
        "Decoding in the loader's workers holds the training back: the main process is",
        "without a batch for 55 % of each step. Predicted with the fix: 176 -> 262",
        "samples/s [248, 277].",
        "Fix     Store the images near the training size (256 px on the short side), or",
        "        decode only the crop",
        "Fixes   oversize_images and float32_on_host together: 176 -> 280 samples/s [264,",
        "        297]; above the next limit (all CPUs), which these fixes also raise",
    ]
    assert last[8:] == [
        "Report  runs/resnet-0412/report.html (beside it: report.json, trace.json.gz)",
        *([] if full else ["More    feedline report runs/resnet-0412 --full"]),
    ]


def test_where_a_gain_is_not_predicted_the_end_says_why() -> None:
    text = " ".join(shown(refused(), files=FILES).split())

    assert "That costs about 73.9 ms per step (40.7 %). Fix" in text
    assert (
        "Gain 176 -> about 298 samples/s without this cost (an estimate from its share of the "
        "time). How fast images" in text
    )
    assert "Fixes" not in text
    assert "Also float32_on_host, costs about" in text
    assert "can be saved" not in text


def test_all_of_a_report_says_of_each_finding_what_its_fix_gives_or_the_cause_costs() -> None:
    predicted, unknown = (" ".join(render(made).split()) for made in (report(), refused()))

    assert (
        "Gain: 176 -> 262 samples/s [248, 277]; above the next limit (all CPUs), which this fix "
        "also raises. How to check" in predicted
    )
    assert "about 298" not in predicted
    assert (
        "Gain: 176 -> about 298 samples/s without this cost (an estimate from its share of the "
        "time). How fast images" in unknown
    )
    assert (
        unknown.count("an estimate from its share") == 3
    )  # of two findings, and at the end; the third is information
    assert "Not predicted." not in unknown


def test_the_html_report_is_offered_only_where_it_was_not_just_written() -> None:
    offer = "Next    feedline report runs/resnet-0412 -o report.html"

    assert offer in shown(report()) and offer in shown(report(), files=FILES[1:])
    assert "Next" not in shown(report(), files=FILES)


def test_all_of_it_goes_from_the_run_to_the_verdict() -> None:
    text = render(report())

    titles = [
        "176 samples/s",
        "Mean step",
        "Why the main process",
        "One sample",
        "Findings",
        "Hooks that could not",
        "Notes",
        "Decoding in the loader",
        "Next",
    ]
    places = [text.index(title) for title in titles]
    assert places == sorted(places)


def test_what_has_nothing_to_say_is_left_out() -> None:
    for text in (shown(without_steps()), render(without_steps())):
        assert "No rule found" not in text and "Mean step" not in text and "Findings" not in text
    assert "One sample" not in render(VARIANTS["no workers"]())
    assert "not measured" not in shown(VARIANTS["training without scale"]())


def test_of_the_short_report_nothing_is_told_twice() -> None:
    text = shown(report())

    assert "Also         float32_on_host, predicted 176 -> 190 samples/s [184, 197]:" in text
    assert "can be saved" not in text
    assert text.count("oversize_images") == 1  # the verdict is its own
    assert "epoch_restart" not in text  # asks for no change
    assert (
        "Notes" not in text
        and "Note         Physical bytes are those of the worker threads" in text
    )


def test_a_run_that_failed_says_so_before_its_verdict() -> None:
    run = replace(report().run, exit_code=3)
    failed = replace(report(), run=run, headline=headline(run, report().throughput.steps))

    for text in (shown(failed), render(failed)):
        assert "The training ended with exit code 3 after 1,200 steps;" in text
        assert text.index("exit code 3 after") < text.index("Decoding in")
    assert "killed or crashed" in shown(unmeasured())


def test_the_step_names_other_and_its_sum() -> None:
    lines = [line.split() for line in render(report()).splitlines()]

    assert ["other", "1.4", "0.8", "%", "█"] in lines
    assert ["sum", "181.4", "100.0", "%"] in lines


def test_a_finding_has_its_evidence_and_its_fix() -> None:
    text = render(refused())

    assert "1. HIGH  oversize_images  costs about 73.9 ms per step (40.7 %)" in text
    assert "- decode CPU per sample: 7.92 ms" in text
    assert "Fix: store the images near the training size" in text


def test_refused_hooks_are_told_only_where_something_was_lost() -> None:
    text = render(report())

    assert "cv2.imread: cv2 was imported as `from cv2 import imread`" in text
    assert "gpu:" not in text


def test_no_color_code_is_written_to_a_file() -> None:
    assert "\x1b" not in render(report())


def test_color_is_used_in_a_terminal_and_says_nothing_more() -> None:
    colored = shown(report(), full=True, force_terminal=True, color_system="standard")

    assert "\x1b[" in colored
    assert "HIGH" in colored


def test_an_escape_sequence_or_markup_in_a_name_does_nothing() -> None:
    text = shown(nasty(), full=True, force_terminal=True, color_system=None)

    assert "\x1b[31m" not in text
    assert "\\x1b[31mred" in text
    assert "[bold]q" in text


def test_a_terminal_that_knows_only_ascii_gets_ascii() -> None:
    text = shown(report(), encoding="ascii")

    assert "####" in text
    assert "176 samples/s | 5.51 steps/s" in text


def test_parts_that_are_missing_are_said_in_words() -> None:
    assert "The run never made a training step." in render(without_steps())
    assert "killed or crashed" in render(unmeasured())


def test_the_next_command_of_a_run_without_steps_looks_for_the_reason() -> None:
    assert "\nNext    feedline env  # what can be recorded" in render(without_steps())


def test_progress_shows_each_step_in_a_terminal_and_goes_away() -> None:
    file = io.StringIO()
    with building(
        Console(file=file, force_terminal=True, width=60), ["reading", "drawing"]
    ) as done:
        done()
        done()

    assert "drawing" in file.getvalue()
    assert "2/2" in file.getvalue()


def test_progress_is_silent_where_nobody_looks() -> None:
    file = io.StringIO()
    with building(Console(file=file), ["reading"]) as done:
        done()

    assert file.getvalue() == ""
