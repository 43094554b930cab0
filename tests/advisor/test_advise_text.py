"""``feedline converge advise`` in the terminal, and as JSON."""

import io
import json
from argparse import ArgumentTypeError
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from advisor.made_up import run, with_curve, with_norms

from feedline.__main__ import main
from feedline.analysis.convergence import read_training
from feedline.analysis.convergence.advisor import advise
from feedline.analysis.convergence.target import StepTime
from feedline.analysis.convergence.training_record import TimeToTarget
from feedline.analysis.report import document_text
from feedline.analysis.report.console import Console
from feedline.cli import converge as advise_command
from feedline.cli.converge import text as advise_text
from feedline.profiler.errors import NotJudged, ScriptError

GOLDEN = Path(__file__).resolve().parents[1] / "golden" / "runs"
SMALL = run("runs-small", batch=32, train=0.10, held=0.30, ranks=1, scale=150.0)
DEFICIT = run("runs-large", batch=256, train=0.9, held=1.0, seed=1, ranks=8)
WRONG = with_norms(DEFICIT, small_sq=DEFICIT.norms.big_sq)
STEPS = [
    StepTime(1, 0.02, 0.02, 0.02, "measured"),
    StepTime(8, 0.03, 0.025, 0.04, "USL"),
    StepTime(64, None, None, None, "64 ranks are too far"),
]


def shown(runs, target=None):
    file = io.StringIO()
    found = advise(runs)
    to = (
        advise_command._times_to_target(
            *advise_command._choose_run(runs, target), found, target, STEPS
        )
        if target
        else None
    )
    document_text.show(
        advise_text.document_of(runs, found, to),
        Console(file=file, width=80, color_system=None, force_terminal=False),
    )
    return file.getvalue()


@pytest.mark.parametrize("runs", [[SMALL], [DEFICIT, SMALL], [WRONG, SMALL], [run(norms=False)]])
def test_nothing_is_wider_than_80_columns(runs):
    text = shown(runs, ("train loss", 1.5))

    copied = ("Fix", "Test")  # commands, which are never wrapped
    lines = [line for line in text.splitlines() if not line.strip().startswith(copied)]
    assert max(map(len, lines)) <= 80


def test_what_is_found_is_told_in_order():
    text = shown([DEFICIT, SMALL], ("train loss", 1.5))

    parts = [
        "Try first:",
        "feedline verify",
        "No mistake found",
        "fits the training data less well",
        "critical batch",
        "Fix      --fix lr_rule=noise:batch_factor=8",
        "Control",
        "Time to train loss",
    ]
    places = [text.index(part) for part in parts]
    assert places == sorted(places)


def test_a_mistake_comes_alone():
    text = shown([WRONG, SMALL])

    assert "same_data" in text and "nothing else is advised" in " ".join(text.split())
    assert "--fix" not in text


def test_the_time_to_a_target_says_why_a_number_of_workers_has_none():
    text = shown([SMALL], ("train loss", 1.5))

    assert "64 ranks are too far" in " ".join(text.split())


def test_a_band_without_an_upper_end_says_what_it_has_at_least():
    row = TimeToTarget(2, 64.0, 954.0, 906.4, None, 19.1, 17.2, None, "measured")

    assert advise_text._target_cells(row, row)[2:6] == (
        "954",
        "906 or more",
        "19.1 s",
        "17.2 s or more",
    )


def test_a_target_that_is_never_reached_is_told():
    assert "never reaches" in " ".join(shown([SMALL], ("train loss", 0.001)).split())


@pytest.mark.parametrize(("first", "last", "target"), [(0.1, 0.9, 0.5), (9.0, 1.0, 5.0)])
def test_a_curve_whose_name_says_nothing_comes_from_its_first_value(first, last, target):
    one = with_curve(SMALL, "score", np.linspace(first, last, SMALL.updates))

    _, reached = advise_command._choose_run([one], ("score", target))

    assert reached.updates == pytest.approx(SMALL.updates / 2, rel=0.2)


def test_a_curve_that_is_not_there_names_those_that_are():
    with pytest.raises(ScriptError, match="eval loss, lr, train loss"):
        advise_command._choose_run([SMALL], ("accuracy", 0.9))


@pytest.mark.parametrize(
    ("name", "how"), [("raises", "failed with"), ("killed", "was killed or crashed")]
)
def test_a_training_that_failed_is_not_called_healthy(name, how, capsys):
    code = main(["converge", "advise", str(GOLDEN / "batch32"), str(GOLDEN / name)])

    said = capsys.readouterr()
    assert (code, said.out) == (NotJudged.exit_code, "")
    assert f"no advice can be given from {GOLDEN / name}: the training {how}" in " ".join(
        said.err.split()
    )


def test_a_training_that_failed_after_an_epoch_is_judged(monkeypatch, capsys):
    """As at the end of the time that a scheduler gave it."""
    read = read_training.of_run
    monkeypatch.setattr(
        read_training, "of_run", lambda run: replace(read(run), samples_per_epoch=8.0)
    )

    assert main(["converge", "advise", str(GOLDEN / "batch32"), str(GOLDEN / "raises")]) == 0
    assert "raises" in capsys.readouterr().out


def test_markup_in_a_name_stays_text():
    assert "[bold]run" in shown([run("[bold]run")])


@pytest.mark.parametrize(
    "text", ["", "0.3", "=0.3", "train loss=", "train loss=x", "train loss=nan"]
)
def test_a_target_without_a_name_or_a_number_is_refused(text):
    with pytest.raises(ArgumentTypeError, match="such as 'train loss=0.3'"):
        advise_command._parse_target(text)


def test_the_name_of_a_target_may_hold_a_sign_of_equality():
    assert advise_command._parse_target("k=3 loss=0.5") == ("k=3 loss", 0.5)


def test_json_holds_everything_and_no_nan(tmp_path):
    found = advise([with_curve(DEFICIT, "train loss", [np.nan] * 192), SMALL])

    advise_command._write_advice(tmp_path / "a.json", found, None)

    again = json.loads((tmp_path / "a.json").read_text(), parse_constant=pytest.fail)
    assert (
        again["verdicts"][0]["kind"] == "instability"
        and again["advice"]
        and again["target"] is None
    )


def test_no_heading_stands_above_nothing():
    for runs in (
        [SMALL],
        [run(norms=False)],
        [run("a", batch=64, scale=60.0)],
        [SMALL, run("twin", train=0.1, held=0.3, scale=256.0)],
    ):
        lines = shown(runs).splitlines()
        headings = [
            "Setup",
            "Diagnosis",
            "Batch size",
            "To try, cheapest first",
            "To get a better answer, record",
        ]

        assert all(
            lines[lines.index(heading) + 1].strip() for heading in headings if heading in lines
        )
    assert "To try" not in shown([run(norms=False)])


def test_a_gain_that_is_unknown_is_not_mentioned():
    text = shown(
        [
            run("small", batch=32, train=0.1, held=0.3, norms=False),
            run("large", train=0.1, held=0.6, seed=1, norms=False),
        ]
    )

    assert "gradient noise" in text.lower()
    assert text.count("Gain ") == text.count("Gain     a loss closer")


def test_the_train_loss_is_the_one_that_report_and_verify_give():
    from feedline.analysis.convergence.read_training import summarise
    from feedline.analysis.convergence.trial import final_value
    from feedline.analysis.report.of_convergence import _progress

    noisy = run("noisy", batch=16, train=0.6, epochs=2)
    noisy = with_curve(
        noisy,
        "train loss",
        noisy.curves["train loss"].values + 0.4 * np.sin(np.arange(noisy.updates)),
    )

    (told,) = [curve for curve in summarise(noisy).curves if curve.name == "train loss"]

    assert told.final == final_value(noisy, "train loss")
    assert (
        abs(told.values[-1] - told.final) > 0.01
    )  # the last point that is drawn is another number
    rows = [line.split() for line in shown([noisy]).splitlines()]
    assert _progress(told).split()[-1] in next(row for row in rows if row[:1] == ["noisy"])
