"""What the noise scale is made from, and when there is none."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from noise.quadratic import norms

from feedline.profiler.noise_scale import _MIN_UPDATES, _Live, _noise_scale, student, windows

positive = st.floats(1e-6, 1e6)


@given(S=positive, G2=positive, b=st.integers(1, 4096), parts=st.integers(2, 512))
def test_expectations_without_noise_give_back_what_they_were_made_from(S, G2, b, parts):
    small, big = np.full(50, G2 + S / b), np.full(50, G2 + S / (b * parts))
    if S / b < 1e-6 * G2 or G2 < 1e-6 * S / b:
        return  # float64 has no digits left for one of the two

    found = _noise_scale(small, big, b, b * parts)

    assert found.value == pytest.approx(S / G2, rel=1e-4)
    assert (found.S, found.G2) == (pytest.approx(S, rel=1e-4), pytest.approx(G2, rel=1e-4))


@given(scale=st.floats(1e-12, 1e12))
def test_a_loss_that_is_scaled_has_the_same_noise_scale(scale):
    small, big = norms(0, 300, parts=4, seen=4)

    once, scaled = _noise_scale(small, big, 8, 32), _noise_scale(small * scale, big * scale, 8, 32)

    assert (scaled.value, scaled.low, scaled.high) == pytest.approx(
        (once.value, once.low, once.high), rel=1e-6
    )


@given(seed=st.integers(0, 10_000), b=st.integers(1, 64), parts=st.integers(2, 8))
def test_the_value_lies_in_its_interval(seed, b, parts):
    found = _noise_scale(*norms(seed, 64, part=b, parts=parts, seen=parts), b, b * parts)

    assert found.value is None or found.low <= found.value <= found.high
    assert (found.value is None) == bool(found.why)


def test_a_ragged_last_batch_counts_with_its_own_sizes():
    b = np.where(np.arange(200) % 10 == 9, 3.0, 8.0)

    found = _noise_scale(0.5 + 40 / b, 0.5 + 40 / (4 * b), b, 4 * b)

    assert found.value == pytest.approx(80.0)


def test_updates_that_are_not_finite_are_left_out_and_counted():
    small, big = norms(0, 300)
    spoilt = small.copy(), big.copy()
    spoilt[0][10:15], spoilt[1][20:23] = math.nan, math.inf
    kept = np.delete(np.arange(300), [*range(10, 15), *range(20, 23)])

    found = _noise_scale(*spoilt, 8, 16)

    assert (found.updates, found.dropped) == (292, 8)
    assert found.S == _noise_scale(small[kept], big[kept], 8, 16).S


@pytest.mark.parametrize(
    ("small", "big", "b", "B", "why"),
    [
        ([], [], [], [], "no update"),
        ([math.nan] * 50, [math.inf] * 50, 8, 16, "no update had a finite gradient"),
        (
            [2.0] * 50,
            [1.0] * 50,
            math.nan,
            16,
            "the number of samples behind the gradients is unknown",
        ),
        ([1.0] * 50, [1.0] * 50, 16, 16, "two ranks, or two micro-batches per update, are needed"),
        ([2.0] * (_MIN_UPDATES - 1), [1.5] * (_MIN_UPDATES - 1), 8, 16, "too few"),
        ([1.0] * 50, [1.0] * 50, 8, 16, "the same data"),
        ([1.0] * 50, [4.0] * 50, 8, 16, "may be a sum"),
    ],
)
def test_what_cannot_be_measured_says_why(small, big, b, B, why):
    found = _noise_scale(small, big, b, B)

    assert found.value is None
    assert why in found.why


def test_a_gradient_lost_in_its_noise_has_a_lower_end_only():
    found = _noise_scale(*norms(0, 60, part=4, scale=20_000), 4, 8)

    assert (found.value, found.high) == (None, None)
    assert 0 < found.low < 20_000
    assert "squared norm includes 0" in found.why


def lucky(errors):
    """A gradient of 0 that was estimated so many standard errors below it, in noise of 1."""
    draws = np.random.default_rng(0).standard_normal(400)
    G2 = 0.1 * ((draws - draws.mean()) / draws.std() - errors / 20)
    return _noise_scale(G2 + 1 / 8, G2 + 1 / 16, 8, 16)


def test_a_gradient_that_comes_out_below_0_is_no_better_known_than_one_that_comes_out_at_0():
    assert lucky(3).low == pytest.approx(lucky(0).low, rel=0.1)
    assert lucky(3).high is None
    assert lucky(-3).low < lucky(0).low


def test_a_gradient_far_below_0_is_refused():
    found = lucky(8)

    assert (found.low, found.value, found.high) == (None, None, None)
    assert "smaller than noise alone would make it" in found.why


def test_noise_that_cannot_be_seen_beside_the_gradient_has_an_upper_end_only():
    generator = np.random.default_rng(0)
    found = _noise_scale(
        1 + 1e-3 * generator.standard_normal(200), 1 + 1e-3 * generator.standard_normal(200), 8, 16
    )

    assert (found.value, found.low) == (None, 0.0)
    assert 0 < found.high < 1


def test_a_finite_data_set_adds_its_share_of_the_noise_to_the_gradient():
    small, big = (
        np.full(50, 1 + 200 / 8 - 200 / 1000),
        np.full(50, 1 + 200 / 16 - 200 / 1000),
    )  # drawn without replacement from 1,000

    assert _noise_scale(small, big, 8, 16, data_set=1000).value == pytest.approx(200.0)
    assert _noise_scale(small, big, 8, 16).value == pytest.approx(250.0)


def test_a_moving_average_is_the_ratio_of_two_debiased_averages():
    small, big = norms(0, 500, parts=4, seen=4)
    S = G2 = 0.0
    for k in range(500):
        S = 0.98 * S + 0.02 * (small[k] - big[k]) / (1 / 8 - 1 / 32)
        G2 = 0.98 * G2 + 0.02 * (32 * big[k] - 8 * small[k]) / 24

    found = _noise_scale(small, big, 8, 32, decay=0.98)

    assert (found.S, found.G2) == pytest.approx((S / (1 - 0.98**500), G2 / (1 - 0.98**500)))


def test_a_moving_average_of_a_handful_of_updates_is_too_few():
    assert "an effective" in _noise_scale(*norms(0, 500), 8, 16, decay=0.8).why


@pytest.mark.parametrize("decay", [0.0, 1.0, -1.0, math.nan])
def test_a_decay_that_is_none_is_refused(decay):
    with pytest.raises(ValueError, match="between 0 and 1"):
        _noise_scale([1.0], [1.0], 1, 2, decay=decay)


def test_columns_of_different_length_are_refused():
    with pytest.raises(ValueError, match="the same length"):
        _noise_scale([1.0, 2.0], [1.0], 1, 2)


def test_windows_cover_every_update_once():
    small, big = norms(0, 1003)

    found = windows(small, big, np.full(1003, 8.0), np.full(1003, 16.0))

    assert len(found) == 20
    assert [(one.first, one.last) for one in found][0][0] == 0 and found[-1].last == 1003
    assert all(one.last == after.first for one, after in zip(found, found[1:]))


@pytest.mark.parametrize(("updates", "pieces"), [(0, 0), (5, 1), (40, 1), (200, 6)])
def test_a_short_training_has_fewer_windows(updates, pieces):
    small, big = norms(0, updates)

    assert len(windows(small, big, np.full(updates, 8.0), np.full(updates, 16.0))) == pieces


def test_a_loop_of_ones_own_sees_the_last_updates():
    small, big = norms(0, 700)
    live = _Live(window=500)
    for pair in zip(small, big):
        live.update(*pair, b=8, B=16)

    assert live.value() == _noise_scale(small[200:], big[200:], 8, 16)


def test_a_loop_that_has_not_begun_has_no_noise_scale():
    assert _Live().value().why == "no update was recorded"


@pytest.mark.parametrize(
    ("freedom", "quantile"), [(5, 2.5706), (10, 2.2281), (19, 2.0930), (100, 1.9840)]
)
def test_students_quantile(freedom, quantile):
    assert student(freedom) == pytest.approx(quantile, rel=0.003)
