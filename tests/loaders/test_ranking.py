"""In which order loaders are shown, and which share a place."""

import pytest

from feedline.pipelines.compare.ranking import places
from feedline.pipelines.compare.result import Part, Row


def row(name: str, *rates: float) -> Row:
    """A loader that gave these samples/s, round by round."""
    return Row(name, "", parts=[Part(1000, 1000 / rate, 1.0, 0.0, 0.1) for rate in rates])


def order(*rows: Row) -> list[tuple[int, str]]:
    return [(place, one.name) for place, one in places(rows)]


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
    drifting = [1.0, 0.5, 0.8, 0.3, 0.9, 0.6, 1.0, 0.4, 0.7]
    fast, slow = row("fast", *(120 * one for one in drifting)), row("slow", *(100 * one for one in drifting))

    assert order(slow, fast) == [(1, "fast"), (2, "slow")]


def test_after_two_that_share_a_place_the_next_place_is_free():
    rows = [row("a", *[100] * 9), row("b", *[100] * 9), row("c", *[50] * 9)]

    assert order(*rows) == [(1, "a"), (1, "b"), (3, "c")]


def test_no_loader_stands_above_one_with_more_samples_per_second():
    slow, between, fast = row("slow", *[100] * 9), row("between", *[90, 140] * 4, 90), row("fast", *[120] * 9)

    for rows in ((slow, between, fast), (fast, slow, between), (between, fast, slow)):
        assert order(*rows) == [(1, "fast"), (2, "slow"), (2, "between")]


@pytest.mark.parametrize("rounds", [1, 2, 4])
def test_of_few_rounds_all_have_to_lie_apart(rounds):
    one, other, third = row("one", *[100] * rounds), row("other", *[300] * rounds), row("third", *[310] * (rounds - 1), 290)

    assert order(one, other) == [(1, "other"), (2, "one")]
    assert rounds == 1 or sorted(order(one, other, third)) == [(1, "other"), (1, "third"), (3, "one")]


def test_nothing_measured_is_no_order():
    assert order() == []
