"""The interval against a known value, over and over."""

import numpy as np
import pytest
from noise.quadratic import TRUE, norms

from feedline.profiler.noise_scale import _noise_scale

REPEATS = 100


def holds(found):
    """Whether the interval, open at the side that is not known, has the true value in it."""
    return (found.low is None or found.low <= TRUE) and (found.high is None or found.high >= TRUE)


@pytest.mark.parametrize("seen", [1, 2])
def test_the_interval_holds_the_known_value_in_ninety_of_a_hundred_trainings_of_1000_updates(seen):
    found = [_noise_scale(*norms(seed, 1000, seen=seen), 8, 16) for seed in range(REPEATS)]

    assert sum(one.value is not None and holds(one) for one in found) >= 0.9 * REPEATS
    assert np.median([one.value for one in found]) == pytest.approx(TRUE, rel=0.05)


def test_of_100_updates_the_interval_holds_it_or_says_that_there_is_no_upper_end():
    found = [_noise_scale(*norms(1000 + seed, 100), 8, 16) for seed in range(REPEATS)]

    assert sum(map(holds, found)) >= 0.85 * REPEATS
    assert all(one.value is not None or (one.low is not None and one.why) for one in found)


def test_the_interval_is_narrower_the_more_updates_there_are():
    widths = [
        found.high / found.low
        for found in (_noise_scale(*norms(7, n), 8, 16) for n in (500, 2000, 8000))
    ]

    assert widths == sorted(widths, reverse=True)
    assert widths[-1] < 1.3


def test_the_mean_of_ratios_would_miss_it():
    small, big = norms(0, 1000)
    S, G2 = (small - big) / (1 / 8 - 1 / 16), (16 * big - 8 * small) / 8

    assert _noise_scale(small, big, 8, 16).value == pytest.approx(TRUE, rel=0.25)
    assert abs(np.mean(S / G2) / TRUE - 1) > 0.5


def test_neighbours_that_are_alike_make_the_interval_wider_than_as_many_strangers():
    small, big = norms(3, 400)

    alone = _noise_scale(np.tile(small, 5), np.tile(big, 5), 8, 16)
    in_company = _noise_scale(np.repeat(small, 5), np.repeat(big, 5), 8, 16)

    assert in_company.high - in_company.low > 1.5 * (alone.high - alone.low)


def test_a_moving_average_follows_a_noise_scale_that_has_changed():
    early, late = norms(1, 2000, parts=4, seen=4), norms(2, 1000, parts=4, seen=4, scale=9.0)
    small, big = (np.concatenate(pair) for pair in zip(early, late))

    moved = _noise_scale(small, big, 8, 32, decay=0.995)

    assert moved.low <= 9.0 <= moved.high
    assert _noise_scale(small, big, 8, 32).value > 1.5 * moved.value
