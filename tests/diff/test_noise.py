"""How well a mean is known, drift, p values, and the correction for many of them."""

import math

import numpy as np
import pytest
import scipy.stats
from hypothesis import given, settings
from hypothesis import strategies as st

from feedline.analysis.measure import noise
from feedline.analysis.measure.noise import (
    MIN_COMPARED,
    MIN_VALUES,
    _block_length,
    _drift,
    _error_of_mean,
    error_of,
    holm,
    p_of,
)

PAIRS = 120


def autoregressive(rng: np.random.Generator, n: int, of_last: float) -> noise.FloatArray:
    """Steps of mean 1 and standard deviation 0.1, each partly like the one before."""
    values, own = np.zeros(n + 100), rng.normal(size=n + 100)
    for at in range(1, n + 100):
        values[at] = of_last * values[at - 1] + own[at]
    return np.asarray(1 + 0.1 * math.sqrt(1 - of_last**2) * values[100:])


def flicker(rng: np.random.Generator, n: int) -> noise.FloatArray:
    """Noise with as much variance at each time scale, eight times longer ones than the run
    included.
    """
    scales = range(int(math.log2(n)) + 4)
    return np.asarray(
        1
        + 0.03
        * sum(
            np.repeat(rng.normal(size=n // 2**k + 2), 2**k)[rng.integers(2**k) :][:n]
            for k in scales
        )
    )


def told_apart(make, with_drift: bool) -> float:
    """Share of pairs of alike runs whose means differ at the 5 % level."""
    rng = np.random.default_rng(0)
    pairs = [(make(rng), make(rng)) for _ in range(PAIRS)]

    def error(values: noise.FloatArray) -> float:
        return math.hypot(_error_of_mean(values), _drift(values) if with_drift else 0.0)

    return (
        sum(p_of(b.mean() - a.mean(), math.hypot(error(a), error(b))) < 0.05 for a, b in pairs)
        / PAIRS
    )


def test_the_error_of_independent_values_is_the_textbooks():
    values = np.random.default_rng(0).normal(1, 0.1, 400)

    assert _error_of_mean(values) == pytest.approx(0.1 / 20, rel=0.15)
    assert _block_length(values) <= 3


def test_values_that_are_like_their_neighbors_tell_less():
    values = autoregressive(np.random.default_rng(1), 4000, 0.8)

    independent = values.std() / math.sqrt(len(values))
    assert _error_of_mean(values) == pytest.approx(independent * math.sqrt(1.8 / 0.2), rel=0.3)


def test_the_error_of_a_median_of_independent_values_is_the_textbooks():
    values = np.random.default_rng(2).normal(1, 0.1, 400)

    assert error_of(lambda drawn: np.median(drawn, axis=-1), values) == pytest.approx(
        1.2533 * 0.1 / 20, rel=0.35
    )


def test_independent_runs_are_told_apart_as_often_as_the_level_says():
    assert 0.015 <= told_apart(lambda rng: rng.normal(1, 0.1, 120), with_drift=False) <= 0.1


def test_runs_whose_steps_are_alike_for_long_are_not_told_apart_thanks_to_their_drift():
    def make(rng: np.random.Generator) -> noise.FloatArray:
        return autoregressive(rng, 120, 0.9)

    assert told_apart(make, with_drift=True) <= 0.07
    assert told_apart(make, with_drift=False) > 0.15


def test_runs_of_noise_at_all_scales_are_seldom_told_apart_thanks_to_their_drift():
    assert told_apart(lambda rng: flicker(rng, 128), with_drift=True) <= 0.17
    assert told_apart(lambda rng: flicker(rng, 128), with_drift=False) > 0.35


def test_a_run_that_gets_slower_drifts_and_one_that_scatters_does_not():
    scattered = np.random.default_rng(3).normal(1, 0.1, 800)

    assert _drift(np.linspace(1, 2, 80)) == pytest.approx(0.3, rel=0.2)
    assert _drift(scattered) < 0.01


def test_a_few_values_say_nothing():
    assert math.isnan(_error_of_mean(np.ones(MIN_VALUES - 1)))
    assert math.isnan(_drift(np.ones(MIN_COMPARED - 1)))
    assert p_of(0.5, math.nan) == 1.0


@given(st.floats(0.01, 8), st.integers(2, 40))
def test_the_p_value_of_few_runs_is_that_of_students_t(t, freedom):
    assert p_of(t, 1.0, freedom) == pytest.approx(2 * scipy.stats.t.sf(t, freedom), abs=0.004)


@given(st.floats(0, 6))
def test_the_p_value_of_many_values_is_that_of_the_normal_distribution(z):
    assert p_of(-z, 1.0) == pytest.approx(2 * scipy.stats.norm.sf(z), abs=1e-9)


def test_holms_correction_is_that_of_his_paper():
    assert holm([0.01, 0.04, 0.03, 0.005]) == pytest.approx([0.03, 0.06, 0.06, 0.02])


@given(st.lists(st.floats(0, 1), min_size=1, max_size=20))
def test_a_corrected_p_value_is_at_least_the_plain_one_and_keeps_the_order(ps):
    corrected = holm(ps)

    assert all(plain <= now <= 1 for plain, now in zip(ps, corrected))
    assert sorted(corrected) == [corrected[at] for at in sorted(range(len(ps)), key=ps.__getitem__)]


@settings(max_examples=40)
@given(st.integers(0, 10_000), st.integers(24, 300))
def test_a_shuffle_of_a_run_does_not_differ_from_it(seed, n):
    rng = np.random.default_rng(seed)
    run = rng.lognormal(0, 0.3, n)
    shuffled = rng.permutation(run)

    error = math.hypot(_error_of_mean(run), _error_of_mean(shuffled))
    assert p_of(float(shuffled.mean() - run.mean()), error) > 0.99


@given(st.lists(st.floats(1e-9, 1e9), min_size=1, max_size=60))
def test_any_values_have_an_error_or_none(values):
    error = _error_of_mean(np.array(values))

    assert math.isnan(error) if len(values) < MIN_VALUES else error >= 0
    assert 1 <= _block_length(np.array(values)) <= max(1, len(values))
    assert (
        math.isnan(_drift(np.array(values)))
        if len(values) < MIN_COMPARED
        else _drift(np.array(values)) >= 0
    )
