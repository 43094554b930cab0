"""Accept, reject or inconclusive."""

from types import SimpleNamespace

import pytest

from feedline.analysis.convergence.curves import is_lower_better
from feedline.analysis.convergence.trial import Branch, decide, usual_metric
from feedline.analysis.report.document import Table
from feedline.analysis.text.formatting import BLANK
from feedline.cli.verify.text import document_of_seeds


def branches(baseline, fix, control=(), samples=1000.0):
    arms = {"baseline": baseline, "fix": fix, "control": control}
    return [
        Branch(arm, seed, value, samples, 10, 0.1)
        for arm, values in arms.items()
        for seed, value in enumerate(values)
    ]


@pytest.mark.parametrize(
    ("rows", "verdict", "why"),
    [
        (
            branches([60, 61, 62], [80, 80.5, 82]),
            "accept",
            "better than the unchanged training by 19.8",
        ),
        (
            branches([60, 61, 62], [80, 81, 83], [70, 71, 72]),
            "accept",
            "and better than its control",
        ),
        (
            branches([60, 61, 62], [80, 81, 83], [80.5, 80, 84]),
            "inconclusive",
            "use the simpler one",
        ),
        (
            branches([60, 61, 62], [80, 81, 83], [90, 91, 92]),
            "reject",
            "its control .* is better by 9.6",
        ),
        (branches([60, 61, 62], [40, 41, 43]), "reject", "worse than the unchanged training"),
        (
            branches([60, 61, 62], [58, 66, 61]),
            "inconclusive",
            "with 3 seeds: not certainly above 0",
        ),
        (branches([60], [80]), "inconclusive", "--seeds 3"),
    ],
)
def test_what_the_seeds_support_decides(rows, verdict, why):
    import re

    trial = decide("warmup=5ep", "adamw=0.1", "val accuracy", rows)

    assert trial.verdict == verdict
    assert re.search(why, trial.why), trial.why


def test_of_a_loss_the_lower_is_better():
    assert (
        decide("a", "", "eval loss", branches([2.0, 2.1, 2.2], [1.0, 1.1, 1.21])).verdict
        == "accept"
    )


@pytest.mark.parametrize(
    ("name", "lower"),
    [
        *((name, True) for name in ("val error", "test/WER", "rmse_cm", "top5 error", "valLoss")),
        *((name, False) for name in ("accuracy", "val/top1_acc", "valAccuracy", "r2", "PSNR (dB)")),
        *((name, None) for name in ("answered", "score", "seconds", "x")),
    ],
)
def test_a_name_says_which_is_better_or_does_not(name, lower):
    assert is_lower_better(name) is lower


def test_what_is_better_can_be_said():
    rows = branches([2.0, 2.1, 2.2], [1.0, 1.1, 1.21])
    assert decide("a", "", "seconds", rows, lower_is_better=True).verdict == "accept"
    assert decide("a", "", "seconds", rows, lower_is_better=False).verdict == "reject"


@pytest.mark.parametrize(
    ("names", "chosen"),
    [
        (["answered", "eval loss", "train loss", "val accuracy"], "val accuracy"),
        (["answered", "eval loss", "train loss"], "eval loss"),
        (["answered", "lr", "train loss"], "train loss"),
    ],
)
def test_a_metric_whose_name_does_not_say_which_is_better_is_not_chosen(names, chosen):
    assert usual_metric([SimpleNamespace(curves=dict.fromkeys(names))]) == chosen


def test_a_fix_that_diverges_is_rejected_and_a_baseline_that_does_settles_nothing():
    failed = Branch("fix", 0, None, 0.0, 0, None, "its train loss is nan")
    assert decide("a", "", "loss", [*branches([2.0, 2.1], []), failed]).verdict == "reject"
    broken = Branch("baseline", 0, None, 0.0, 0, None, "exit code 1")
    assert decide("a", "", "loss", [broken, *branches([], [1.0])]).verdict == "inconclusive"


def test_a_control_that_fails_settles_nothing():
    rows = branches([60, 61, 62], [80, 81, 83], [70, 71])
    broken = Branch("control", 2, None, 0.0, 0, None, "exit code 1")

    trial = decide("lars=3", "lr_rule=linear:8", "val accuracy", [*rows, broken])

    assert trial.verdict == "inconclusive"
    assert "its control (lr_rule=linear:8) failed (seed 2: exit code 1)" in trial.why


def test_arms_with_different_numbers_of_samples_are_not_compared():
    rows = [*branches([2.0, 2.1, 2.2], []), *branches([], [1.0, 1.1, 1.2], samples=2000.0)]

    trial = decide("a", "", "loss", rows)

    assert trial.verdict == "inconclusive"
    assert "1,000 to 2,000" in trial.why


def test_a_margin_must_be_won_as_well():
    rows = branches([60, 61, 62], [80, 81, 82])
    assert decide("a", "", "accuracy", rows, margin=10).verdict == "accept"
    assert decide("a", "", "accuracy", rows, margin=25).verdict == "inconclusive"


def test_a_run_that_failed_is_in_no_number_of_samples_or_updates():
    made = [Branch("baseline", seed, 60.0, 6144.0, 48, 0.1) for seed in (0, 1)]
    one_failed = [Branch("control", 0, 61.0, 6144.0, 48, 0.1)]
    one_failed.append(Branch("control", 1, None, 0.0, 0, None, "exit code 1"))
    all_failed = [Branch("fix", seed, None, 0.0, 0, None, "exit code 1") for seed in (0, 1)]
    trial = decide("lamb=0.04", "adamw=0.04", "val accuracy", [*made, *one_failed, *all_failed])

    (table,) = document_of_seeds(trial).of(Table)

    assert [row[4:6] for row in table.rows] == [
        ("6,144", "48"),
        ("6,144", "48"),
        (BLANK, BLANK),
    ]
