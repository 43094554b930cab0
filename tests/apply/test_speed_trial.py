"""The decision of a trial of speed."""

import json

import pytest

from feedline.analysis.explain.speed_trial import (
    CHANGED,
    CODES,
    SPEED,
    UNCHANGED,
    Recorded,
    TrialRun,
    Tried,
    decide,
    read,
)
from feedline.analysis.ledger.finding import PredictedRate
from feedline.analysis.report.document import Fields, Headline, Note, Table
from feedline.analysis.report.json_report import plain
from feedline.cli.verify.pairs import _order
from feedline.cli.verify.text import document_of, document_of_earlier

PREDICTED = PredictedRate(100.0, 160.0, 150.0, 170.0)


def notes(found):
    return [note.text for note in document_of(found).of(Note)]


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
    said = "The prediction holds: 1.60 times the throughput was measured, 1.60 times predicted."
    assert said in notes(slower_machine)
    too_high = trial((100, 100, 100), (120, 121, 120))
    said = (
        "The prediction was too high: 1.20 times the throughput was measured, 1.60 times predicted."
    )
    assert said in notes(too_high)
    assert not trial((100, 100, 100), (120, 121, 120)).inside
    noisy = trial((64, 116), (73, 122))  # an interval that is wide enough to have 1.60 in it
    assert noisy.inside
    said = "Whether the prediction holds is unknown: 1.10 times the throughput was measured"
    assert any(note.startswith(said) for note in notes(noisy))
    refused = trial((100, 100, 100), (120, 121, 120), predicted=None)
    assert (refused.residual, refused.inside, refused.verdict) == (None, None, "accept")


def test_a_trial_under_other_conditions_than_recorded_says_so_and_is_not_compared_with_the_prediction():
    recorded = Recorded(100.0, 80.0, 130.0)
    found = trial((50, 50, 50), (80, 81, 79), recorded=recorded)
    said = (
        "The unchanged training now runs at 50.0 samples/s, not at the 100 recorded, so the "
        "prediction does not apply."
    )

    assert (
        found.verdict == "accept"
        and found.conditions_changed
        and (found.residual, found.inside) == (None, None)
    )
    assert notes(found) == [said]
    near = trial(
        (85, 85, 85), (90, 91, 89), recorded=Recorded(100.0, 90.0, 130.0)
    )  # below the interval, but not by a quarter
    assert near.residual is not None and all("conditions" not in note for note in notes(near))
    assert len(notes(near)) == 1


@pytest.mark.parametrize(
    ("changed", "code"), [((160, 158, 162), 0), ((80, 82, 81), 77), ((100, 140, 90), 75)]
)
def test_each_verdict_has_an_exit_code_of_its_own(changed, code):
    assert CODES[trial((100, 101, 100), changed).verdict] == code
    assert len(set(CODES.values())) == len(CODES) == 3


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ((160, 158, 162), "ACCEPT: throughput +59.5 % (+52.6 % to +66.6 %) in 3 pairs of runs"),
        ((80, 82, 81), "REJECT: throughput -19.3 % ("),
        ((100, 140, 90), "INCONCLUSIVE: throughput +"),
    ],
)
def test_the_verdict_comes_first_then_predicted_beside_measured(changed, said):
    title, headline, fields, *_ = document_of(trial((100, 101, 100), changed)).blocks

    assert isinstance(headline, Headline) and headline.text.startswith(said)
    assert isinstance(fields, Fields)
    assert [row.label for row in fields.rows] == ["Predicted", "Measured"]
    assert fields.rows[0].text == "100 -> 160 samples/s (150 to 170)"


def test_a_prediction_for_other_conditions_is_not_listed_as_if_it_were_for_a_trial():
    slower = trial((50, 50, 50), (80, 81, 79), recorded=Recorded(100.0, 80.0, 130.0))
    as_recorded = trial((100, 100, 100), (160, 161, 159), recorded=Recorded(100.0, 80.0, 130.0))
    entries = [
        json.loads(json.dumps(plain({"kind": SPEED, "at": "2026-01-01", **vars(found)})))
        for found in (slower, as_recorded)
    ]

    of_other, own = read(entries)

    (table,) = document_of_earlier([of_other, own]).of(Table)
    assert [row[2:] for row in table.rows] == [
        ("does not apply", "+60.0 %", "accept"),
        ("+60.0 %", "+60.0 %", "accept"),
    ]
    assert "predicted" in own.says() and "predicted" not in of_other.says()


def test_the_unchanged_training_that_fails_proves_nothing():
    found = trial((100, None, 100), (160, 160, 160))

    assert (found.verdict, found.why) == (
        "inconclusive",
        "the unchanged training failed (exit code 1)",
    )


def test_the_arm_that_goes_first_alternates():
    assert _order(3) == [
        (UNCHANGED, 1),
        (CHANGED, 1),
        (CHANGED, 2),
        (UNCHANGED, 2),
        (UNCHANGED, 3),
        (CHANGED, 3),
    ]
