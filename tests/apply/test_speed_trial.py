"""The decision of a trial of speed."""

import pytest

from feedline.analysis.explain.speed_trial import (
    CHANGED,
    CODES,
    UNCHANGED,
    Recorded,
    TrialRun,
    Tried,
    decide,
)
from feedline.analysis.ledger.finding import PredictedRate
from feedline.cli.verify.pairs import order
from feedline.cli.verify.text import conclusion_lines

PREDICTED = PredictedRate(100.0, 160.0, 150.0, 170.0)


def trial(unchanged, changed, predicted=PREDICTED, failed="", recorded=None):
    arms = [(UNCHANGED, unchanged), (CHANGED, changed)]
    runs = [
        TrialRun(arm, pair, rate, 20 if rate else 0, "" if rate else failed or "exit code 1")
        for arm, rates in arms
        for pair, rate in enumerate(rates, 1)
    ]
    return decide(
        Tried("num_workers=4", "", "train.py:3", "samples/s", 0.02, predicted, "", recorded), runs
    )


@pytest.mark.parametrize(
    ("changed", "verdict"),
    [
        ((160, 158, 162), "accept"),
        ((100, 99, 98), "reject"),
        ((80, 82, 81), "reject"),
        ((100, 140, 90), "inconclusive"),
        ((None, None, None), "reject"),
    ],
)
def test_the_interval_over_pairs_decides(changed, verdict):
    assert trial((100, 101, 100), changed).verdict == verdict


def test_a_machine_that_becomes_slower_between_pairs_does_not_hide_the_gain():
    assert trial((100, 50, 25), (160, 80, 40)).verdict == "accept"


def test_predicted_and_measured_are_compared_as_gains():
    slower_machine = trial((90, 90, 90), (144, 145, 143))

    assert slower_machine.residual == pytest.approx(1.0, abs=0.01)
    assert slower_machine.inside
    assert slower_machine.measured.before == 90
    assert (
        "Speedup    1.60 times measured, 1.60 times predicted; the intervals overlap"
        in conclusion_lines(slower_machine)
    )
    assert not trial((100, 100, 100), (120, 121, 120)).inside
    refused = trial((100, 100, 100), (120, 121, 120), predicted=None)
    assert (refused.residual, refused.inside, refused.verdict) == (None, None, "accept")


def test_a_trial_under_other_conditions_than_recorded_says_so_and_is_not_compared_with_the_prediction():
    recorded = Recorded(100.0, 80.0, 130.0)
    found = trial((50, 50, 50), (80, 81, 79), recorded=recorded)
    said = (
        "Conditions have changed: the unchanged training runs at 50.0 samples/s, recorded were "
        "100; the prediction is for those"
    )

    assert (
        found.verdict == "accept"
        and found.conditions_changed
        and (found.residual, found.inside) == (None, None)
    )
    assert said in conclusion_lines(found) and not any(
        "Speedup" in line for line in conclusion_lines(found)
    )
    near = trial(
        (85, 85, 85), (90, 91, 89), recorded=Recorded(100.0, 90.0, 130.0)
    )  # below the interval, but not by a quarter
    assert near.residual is not None and not any(
        "Conditions" in line for line in conclusion_lines(near)
    )


@pytest.mark.parametrize(
    ("changed", "code"), [((160, 158, 162), 0), ((80, 82, 81), 77), ((100, 140, 90), 75)]
)
def test_each_verdict_has_an_exit_code_of_its_own(changed, code):
    assert CODES[trial((100, 101, 100), changed).verdict] == code
    assert len(set(CODES.values())) == len(CODES) == 3


def test_the_unchanged_training_that_fails_proves_nothing():
    found = trial((100, None, 100), (160, 160, 160))

    assert (found.verdict, found.why) == (
        "inconclusive",
        "the unchanged training failed (exit code 1)",
    )


def test_the_arm_that_goes_first_alternates():
    assert order(3) == [
        (UNCHANGED, 1),
        (CHANGED, 1),
        (CHANGED, 2),
        (UNCHANGED, 2),
        (UNCHANGED, 3),
        (CHANGED, 3),
    ]
