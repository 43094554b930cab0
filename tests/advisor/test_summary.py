"""What a report is given."""

import dataclasses
import json
import typing

import numpy as np
import pytest
from advisor.made_up import curve, run, with_curve

from feedline.analysis.convergence import curves, read_training, training_record
from feedline.analysis.convergence.read_training import summarise


def test_a_summary_is_plain_json():
    found = summarise(run())

    again = json.loads(json.dumps(dataclasses.asdict(found), allow_nan=False))
    assert again["workers"] == []
    assert [one["name"] for one in again["curves"]][:3] == ["train loss", "eval loss", "lr"]


def test_every_field_has_a_type_that_the_schema_knows():
    for cls in vars(training_record).values():
        if dataclasses.is_dataclass(cls):
            assert typing.get_type_hints(cls)


def test_curves_are_thinned_to_200_points_with_their_mean_kept():
    long = curve(np.linspace(2, 0, 12_345), 32)

    found = read_training._thinned_points("train loss", long)

    assert len(found.values) == 200
    assert np.mean(found.values) == pytest.approx(1.0, abs=0.01)
    assert found.updates[-1] == 12_344


def test_values_that_are_not_finite_are_counted_and_left_out():
    found = read_training._thinned_points("train loss", curve([1.0, np.nan, np.inf, 2.0], 32))

    assert (found.values, found.not_finite) == ([1.0, 2.0], 2)


def test_a_curve_of_nothing_is_empty():
    assert read_training._thinned_points("x", curve([np.nan], 1)).values == []


def test_checks_are_told_by_their_cause():
    found = summarise(with_curve(run(), "train loss", [np.nan] * 192)).checks

    assert [one.rule_id for one in found] == ["not_finite"]


def test_names_say_which_way_is_better():
    assert (
        curves.is_higher_better("val/top1_acc")
        and curves.is_higher_better("accuracy")
        and curves.is_higher_better("eval accuracy")
    )
    assert (
        not curves.is_higher_better("val loss")
        and not curves.is_higher_better("train loss")
        and not curves.is_higher_better("backprop")
    )
