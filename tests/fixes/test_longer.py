"""Longer training by the predicted inflation."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from feedline.convergence.fixes.longer import FIX, inflation, longer

samples = st.floats(1, 1e6)


def test_eight_times_the_batch_at_the_critical_batch_of_the_acceptance_table():
    found = longer(12, batch=256, base_batch=32, critical_batch=144, low=92, high=200)

    assert found.epochs == pytest.approx(12 * (1 + 256 / 144) / (1 + 32 / 144))
    assert (found.low, found.high) == pytest.approx(
        (12 * (1 + 256 / 200) / (1 + 32 / 200), 12 * (1 + 256 / 92) / (1 + 32 / 92))
    )
    assert found.rounded == 28


@given(base=samples, times=st.floats(1, 1e3), critical=samples)
def test_it_costs_samples_and_saves_updates(base, times, critical):
    factor = inflation(base * times, base, critical)

    assert 1 - 1e-9 <= factor <= times * (1 + 1e-9)


@given(batch=samples, base=samples, critical=samples, low=st.floats(0, 1), high=st.floats(1, 100))
def test_the_prediction_lies_in_its_interval(batch, base, critical, low, high):
    found = longer(10, batch, base, critical, critical * low, critical * high)

    assert found.low * (1 - 1e-9) <= found.epochs <= found.high * (1 + 1e-9)


def test_the_ends_of_what_a_critical_batch_can_be():
    assert inflation(256, 32, 0) == 8
    assert inflation(256, 32, math.inf) == 1
    assert longer(10, 256, 32, 144, 0, math.inf).high == 80


def test_the_same_batch_is_as_long_and_without_an_interval_has_none():
    found = longer(12, 32, 32, 144)

    assert (found.epochs, found.rounded) == (12, 12)
    assert math.isnan(found.low) and math.isnan(found.high)


@pytest.mark.parametrize(
    ("numbers", "message"),
    [
        ((0, 256, 32, 144), "epochs"),
        ((math.nan, 256, 32, 144), "epochs"),
        ((12, 0, 32, 144), "sizes must be above 0"),
        ((12, 256, math.nan, 144), "sizes must be above 0"),
        ((12, 256, 32, -1), "sizes must be above 0"),
        ((12, 256, 32, math.nan), "sizes must be above 0"),
        ((12, 256, 32, 144, 150, 200), "does not contain 144"),
        ((12, 256, 32, 144, 100), "does not contain 144"),
    ],
)
def test_numbers_that_cannot_be_are_refused(numbers, message):
    with pytest.raises(ValueError, match=message):
        longer(*numbers)


@pytest.mark.parametrize(
    "text",
    [
        "256:base_batch=32:critical_batch=144",
        "256:base_batch=32:critical_batch=144:low=92:high=200",
        "256:b0=32:bc=144",
    ],
)
def test_its_lines_make_the_epochs_longer(text):
    program = {"epochs": 12}

    exec(FIX.lines(FIX.parse(text)), program)

    assert program["epochs"] == 28
    assert FIX.attach is None


@pytest.mark.parametrize(
    "text",
    ["", "2x", "256", "256:b0=32", "256:bc=1:b0=0", "256:b0=32:bc=144:low=1", "256:512:b0=1:bc=1"],
)
def test_a_value_that_is_none_says_why(text):
    with pytest.raises(ValueError, match="expected 256|above 0|does not contain"):
        FIX.parse(text)
