"""In which order loaders are shown, and which share a place."""

import math
import random

import pytest

from feedline.pipelines.compare.comparison_result import (
    EpochPart,
    LoaderRow,
    median_interval,
    rank_loaders,
)


def row(name: str, *rates: float) -> LoaderRow:
    """A loader that gave these samples/s, round by round."""
    return LoaderRow(
        name, "", parts=[EpochPart(1000, 1000 / rate, 1.0, 0.0, 0.1) for rate in rates]
    )


def order(*rows: LoaderRow) -> list[tuple[int, str]]:
    return [(place, one.name) for place, one in rank_loaders(rows)]


def test_the_fastest_comes_first():
    slow, fast = row("slow", *[100] * 9), row("fast", *[200] * 9)

    assert order(slow, fast) == [(1, "fast"), (2, "slow")]


def test_loaders_whose_order_is_luck_share_a_place():
    one, other = row("one", *[100] * 9), row("other", *[101] * 7, 99, 99)

    assert order(one, other) == order(other, one) == [(1, "other"), (1, "one")]


def test_a_difference_of_five_percent_is_none_that_the_next_comparison_would_show_again():
    slow, fast = row("slow", *[100] * 9), row("fast", *[105] * 9)

    assert order(slow, fast) == [(1, "fast"), (1, "slow")]


def test_one_disturbed_round_of_nine_does_not_make_two_loaders_alike():
    fast, slow = row("fast", *[200] * 8, 50), row("slow", *[100] * 9)

    assert order(slow, fast) == [(1, "fast"), (2, "slow")]


def test_a_round_in_which_the_machine_was_slow_counts_for_all():
    drifting = [1.0, 0.95, 0.9, 0.97, 1.0, 0.93, 0.96, 0.94, 0.99]
    fast, slow = (
        row("fast", *(120 * one for one in drifting)),
        row("slow", *(100 * one for one in drifting)),
    )

    assert order(slow, fast) == [(1, "fast"), (2, "slow")]


def test_loaders_whose_intervals_overlap_share_a_place_whatever_the_ratio_of_their_medians():
    """As on a machine that others used: medians of 694 and 331, rounds from 494 to 1,194 and from
    278 to 1,701.
    """
    fast = row("fast", 494, 580, 620, 660, 694, 800, 900, 1000, 1194)
    slow = row("slow", 278, 290, 300, 310, 331, 500, 700, 900, 1701)

    assert order(slow, fast) == [(1, "fast"), (1, "slow")]


def test_the_interval_of_a_median_leaves_out_as_many_rounds_as_chance_allows():
    assert median_interval([9, 1, 2, 3, 4, 5, 6, 7, 8]) == (2, 8)  # 2 (1 + 9) / 2^9 = 3.9 %
    assert median_interval(range(1, 7)) == (1, 6)  # 2 / 2^6 = 3.1 %
    assert median_interval(range(1, 19)) == (5, 14)  # 2 (1 + 18 + 153 + 816 + 3060) / 2^18 = 3.1 %
    assert median_interval([3, 1]) == (1, 3)
    assert median_interval([3]) == (3, 3)


def test_what_is_called_an_interval_of_95_percent_is_one():
    dice = random.Random(0)
    inside = 0
    for _ in range(2000):
        low, high = median_interval([dice.expovariate(1.0) for _ in range(9)])
        inside += low <= math.log(2) <= high

    assert 0.95 <= inside / 2000 <= 0.975


def test_after_two_that_share_a_place_the_next_place_is_free():
    rows = [row("a", *[100] * 9), row("b", *[100] * 9), row("c", *[50] * 9)]

    assert order(*rows) == [(1, "a"), (1, "b"), (3, "c")]


def test_no_loader_stands_above_one_with_more_samples_per_second():
    slow, between, fast = (
        row("slow", *[100] * 9),
        row("between", *[90, 140] * 4, 90),
        row("fast", *[120] * 9),
    )

    for rows in ((slow, between, fast), (fast, slow, between), (between, fast, slow)):
        assert order(*rows) == [(1, "fast"), (2, "slow"), (2, "between")]


@pytest.mark.parametrize("rounds", [1, 2, 4])
def test_of_few_rounds_all_have_to_lie_apart(rounds):
    one, other, third = (
        row("one", *[100] * rounds),
        row("other", *[300] * rounds),
        row("third", *[310] * (rounds - 1), 290),
    )

    assert order(one, other) == [(1, "other"), (2, "one")]
    assert rounds == 1 or sorted(order(one, other, third)) == [
        (1, "other"),
        (1, "third"),
        (3, "one"),
    ]


def test_nothing_measured_is_no_order():
    assert order() == []
