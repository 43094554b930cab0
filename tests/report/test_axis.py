"""Where ticks and labels go."""

import math
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from feedline.analysis.report.figures.axis import YAxis, round_up, spread_labels, ticks
from feedline.analysis.report.figures.step_times import _clip_level

heights = st.floats(1e-9, 1e12)


@given(heights, st.integers(3, 8))
def test_ticks_begin_at_zero_are_even_and_do_not_pass_the_end(high: float, most: int) -> None:
    made = ticks(high, most)

    assert made[0] == 0
    assert 2 <= len(made) <= most + 1
    assert made[-1] <= high * (1 + 1e-6)
    assert made[-1] + made[1] > high * (1 - 1e-6)


def test_ticks_are_at_round_numbers() -> None:
    assert ticks(0.37, 4) == [0.0, 0.1, 0.2, 0.30000000000000004]
    assert ticks(1200, 5) == [0, 500, 1000]


@given(heights)
def test_a_rounded_end_is_not_below_the_data_and_not_far_above(high: float) -> None:
    assert high * (1 - 1e-6) <= round_up(high) <= 2 * high


@given(st.lists(st.floats(0, 200), max_size=12).map(sorted), st.floats(1, 16))
def test_labels_are_moved_apart_in_order_and_stay_inside_if_they_fit(
    wanted: list[float], gap: float
) -> None:
    placed = spread_labels(wanted, gap, 0, 200)

    assert all(b - a >= gap * (1 - 1e-9) for a, b in zip(placed, placed[1:], strict=False))
    if gap * (len(wanted) - 1) <= 200:
        assert all(-1e-9 <= place <= 200 + 1e-9 for place in placed)


def test_labels_that_have_room_stay_where_they_are() -> None:
    assert spread_labels([10, 50, 90], 14, 0, 100) == [10, 50, 90]


def test_a_few_peaks_do_not_flatten_the_rest() -> None:
    assert _clip_level([1.0] * 99 + [40.0], [0.9] * 100) == 1.25


def test_peaks_that_are_common_stay_on_the_axis() -> None:
    assert _clip_level([1.0] * 90 + [40.0] * 10, [0.9] * 100) == 40.0


@given(st.floats(1e-9, 1e9) | st.floats(-1e9, -1e-9), st.integers(0, 3))
def test_values_that_differ_by_rounding_have_an_axis(value: float, ulps: int) -> None:
    """Means of a number that a program logs unchanged in each update."""
    other = value
    for _ in range(ulps):
        other = math.nextafter(other, math.inf)
    axis = YAxis.over([value, other], 190, log=False)

    assert axis.low <= value <= other <= axis.high and axis.low < axis.high
    assert 0 <= axis.y(value) <= 190 and axis.rows()


@pytest.mark.parametrize("log", [None, False, True])
@pytest.mark.parametrize("values", [[1.0, sys.float_info.max], [5e-324, 1.0], [5e-324] * 2])
def test_values_at_the_ends_of_float64_have_an_axis(values: list[float], log: bool | None) -> None:
    """Such as the best loss of a program, before it has one."""
    axis = YAxis.over(values, 110, log)

    assert axis.low < axis.high < math.inf
    assert all(0 <= axis.y(value) <= 110 for value in (*values, -sys.float_info.max))
    assert 1 <= len([mark for mark in axis.rows() if "<text" in mark]) <= 4
    assert max(len(mark) for mark in axis.rows()) < 120


def test_values_of_both_signs_at_the_ends_of_float64_have_an_axis() -> None:
    axis = YAxis.over([-sys.float_info.max, sys.float_info.max], 110)

    assert (axis.y(-sys.float_info.max), axis.y(sys.float_info.max)) == (110, 0)
    assert axis.rows()
