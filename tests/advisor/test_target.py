"""Updates and time to a target."""

import numpy as np
import pytest
from advisor.made_up import curve, loss, run
from hypothesis import given
from hypothesis import strategies as st

from feedline.analysis.convergence import read_training
from feedline.analysis.convergence import target as batch_cost
from feedline.analysis.convergence.target import (
    _PROXY,
    Reached,
    StepTime,
    _updates_at,
    steps_to_target,
    time_to_target,
)
from feedline.analysis.convergence.training_record import NoiseOverTraining

MEASURED = StepTime(1, 0.02, 0.019, 0.021, "measured")
HALF_WAY = Reached(1000.0, 32_000.0, 20.0, 950.0, 1060.0)


def known(value=144.0, low=27.0, high=392.0):
    return NoiseOverTraining(value, low, high, "", "ddp", [], 0)


@pytest.mark.parametrize("rising", [False, True])
def test_a_curve_comes_to_its_target_where_it_crosses_it(rising):
    values = np.linspace(1.0, 0.0, 1001)

    found = steps_to_target(
        curve(1 - values if rising else values, 32),
        0.75 if rising else 0.25,
        rising=rising,
        smoothing=0.0,
    )

    assert (found.updates, found.samples) == (750, 750 * 32)


def test_noise_makes_a_band_about_the_crossing():
    values = loss(0.1, 2000, noise=0.1)

    found = steps_to_target(curve(values, 32), 0.5)

    exact = np.flatnonzero(loss(0.1, 2000, noise=0.0) <= 0.5)[0]
    assert found.low < found.high
    assert found.low <= exact + 0.02 * 2000 and exact <= found.high
    assert found.updates == pytest.approx(exact, rel=0.1)


def test_one_lucky_batch_is_not_the_target():
    values = np.ones(1000)
    values[100] = 0.0

    assert steps_to_target(curve(values, 32), 0.5).updates is None


@pytest.mark.parametrize(
    ("values", "why"),
    [([1.0, 0.9, 0.8], "never reaches"), ([np.nan, np.inf], "no finite"), ([], "no finite")],
)
def test_a_curve_that_never_comes_there_abstains(values, why):
    found = steps_to_target(curve(values, 32), 0.5)

    assert found.updates is None and why in found.why
    assert time_to_target(found, 32, 64, known(), MEASURED).why == found.why


@pytest.mark.parametrize("target", [np.nan, np.inf])
def test_a_target_that_is_no_number_is_refused(target):
    with pytest.raises(ValueError, match="finite"):
        steps_to_target(curve([1.0], 32), target)


@given(batch=st.floats(1, 1e5), base=st.floats(1, 1e5), critical=st.floats(0, 1e6))
def test_a_larger_batch_never_takes_more_updates_nor_fewer_samples(batch, base, critical):
    updates = _updates_at(1000.0, base, batch, critical)

    if batch >= base:
        assert updates <= 1000 * (1 + 1e-9)
        assert updates * batch >= 1000 * base * (1 - 1e-9)
    assert _updates_at(updates, batch, base, critical) == pytest.approx(1000.0)


def test_the_band_joins_the_curve_the_noise_scale_and_the_step():
    found = time_to_target(HALF_WAY, 32, 256, known(), MEASURED)

    assert found.updates == pytest.approx(1000 * (1 + 144 / 256) / (1 + 144 / 32))
    assert found.updates_low == pytest.approx(
        950 * (1 + _PROXY * 392 / 256) / (1 + _PROXY * 392 / 32)
    )
    assert found.updates_high == pytest.approx(
        1060 * (1 + 27 / _PROXY / 256) / (1 + 27 / _PROXY / 32)
    )
    assert (found.time_s, found.low_s, found.high_s) == pytest.approx(
        (found.updates * 0.02, found.updates_low * 0.019, found.updates_high * 0.021)
    )


def test_the_band_has_no_upper_end_where_the_curve_may_not_come_there():
    falls = np.linspace(1.0, 0.5, 1000) + 0.1 * np.random.default_rng(0).standard_normal(1000)

    reached = steps_to_target(curve(falls, 32), 0.48)
    found = time_to_target(reached, 32, 32, known(), MEASURED)

    assert reached.low < reached.updates and reached.high is None
    assert (found.updates, found.updates_low) == (reached.updates, reached.low)
    assert found.low_s == pytest.approx(reached.low * 0.019)
    assert (found.updates_high, found.high_s) == (None, None)


def test_a_curve_that_may_begin_at_its_target_may_take_no_update():
    reached = Reached(10.0, 320.0, 0.2, 0.0, 20.0)

    found = time_to_target(reached, 32, 32, known(), MEASURED)

    assert (found.updates_low, found.low_s) == (0.0, 0.0)
    assert (found.updates_high, found.high_s) == pytest.approx((20.0, 0.42))


def test_the_batch_itself_needs_no_noise_scale():
    unknown = NoiseOverTraining(None, None, None, "one rank", "", [], 0)

    assert time_to_target(HALF_WAY, 32, 32, unknown, MEASURED).updates == 1000
    other = time_to_target(HALF_WAY, 32, 64, unknown, MEASURED)
    assert other.updates is None and "one rank" in other.why


def test_without_the_time_of_a_step_updates_are_still_told():
    found = time_to_target(
        HALF_WAY,
        32,
        64,
        known(),
        StepTime(2, None, None, None, "two numbers of workers are needed"),
    )

    assert found.updates is not None and found.time_s is None
    assert "two numbers of workers" in found.why


def test_updates_to_70_percent_of_the_study_lie_in_the_band():
    measured = {
        64: 333,
        128: 213,
        256: 166,
        512: 137,
        1024: 147,
    }  # CONVERGENCE.md, from 672 at batch 32
    reached = Reached(672.0, 0.0, 0.0, 605.0, 740.0)

    inside = [
        found
        for batch, took in measured.items()
        if (found := time_to_target(reached, 32, batch, known(), MEASURED)).updates_low
        <= took
        <= found.updates_high
    ]

    assert len(inside) >= 4


@pytest.mark.parametrize(
    ("batch", "where"),
    [(2000, "far above"), (500, "above"), (100, "near"), (20, "below"), (5, "far below")],
)
def test_a_batch_has_its_place(batch, where):
    found = batch_cost.price_batch(known(), batch)

    assert found.where == where
    assert found.samples_low <= found.samples_factor <= found.samples_high
    assert found.updates_low <= found.updates_factor <= found.updates_high


def test_a_lower_end_alone_places_a_small_batch():
    bounded = NoiseOverTraining(None, 5000.0, None, "its interval holds 0", "ddp", [], 0)

    assert batch_cost.price_batch(bounded, 64).where == "far below"
    assert batch_cost.price_batch(bounded, 8000).where == "unknown"


def test_price_and_its_complement_are_one_curve():
    found = batch_cost.price_batch(known(), 256)

    assert (found.samples_factor - 1) * (found.updates_factor - 1) == pytest.approx(1.0)


@pytest.mark.parametrize("batch", [0, -1, np.nan])
def test_a_batch_without_samples_has_no_price(batch):
    with pytest.raises(ValueError):
        batch_cost.price_batch(known(), batch)


def test_the_noise_scale_of_a_training_is_near_that_of_its_gradients():
    found = read_training._noise_over_training(run(batch=64, scale=100.0, epochs=40, ranks=4))

    assert found.value == pytest.approx(100.0, rel=0.25)
    assert found.low < 100 < found.high
    assert len(found.windows) == 20


def test_a_run_without_norms_says_what_they_need():
    assert "one micro-batch" in read_training._noise_over_training(run(norms=False)).why


def test_a_training_too_noisy_for_short_windows_is_measured_in_longer_ones():
    runs = [
        run(batch=16, scale=500.0, epochs=2, seed=seed) for seed in range(20)
    ]  # 512 updates: up to 16 windows
    found = [read_training._noise_over_training(one) for one in runs]

    assert sum(one.low <= 500 <= one.high for one in found) >= 16
    assert np.median([len(one.windows) for one in found]) < 8
    assert np.median([one.value for one in found]) == pytest.approx(500.0, rel=0.2)


def test_a_noise_scale_that_cannot_be_measured_at_all_still_bounds_the_batch():
    found = read_training._noise_over_training(run(batch=8, scale=1e6, epochs=1))

    assert (found.value, found.high, len(found.windows)) == (None, None, 1)
    assert batch_cost.price_batch(found, 8).where == "far below"
