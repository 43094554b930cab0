"""Numbers as text."""

import math

import pytest

from feedline.analysis.text.formatting import (
    Scale,
    count,
    duration,
    gauge_value,
    number,
    seconds,
    share,
    size,
    value,
)


@pytest.mark.parametrize(
    ("time", "text"),
    [
        (0, "0 s"),
        (8.3e-7, "830 ns"),
        (1.23e-5, "12.3 µs"),
        (0.0123, "12.3 ms"),
        (1.239, "1.24 s"),
        (192, "3 min 12 s"),
        (3840, "1 h 04 min"),
    ],
)
def test_a_time_has_three_digits_and_the_unit_that_fits(time: float, text: str) -> None:
    assert seconds(time) == text


@pytest.mark.parametrize("function", [seconds, duration, size, share, number, count])
@pytest.mark.parametrize("missing", [None, math.nan, math.inf])
def test_what_is_missing_is_said_in_words(function, missing) -> None:
    assert function(missing) == "not measured"


def test_a_number_that_nobody_reads_digit_by_digit_has_an_exponent() -> None:
    assert [number(1.66e-24), number(2.877e39), number(1e14)] == [
        "1.66e-24",
        "2.88e+39",
        "100,000,000,000,000",
    ]


def test_bytes_come_in_powers_of_1000() -> None:
    assert [size(24.0), size(52.625), size(110_592), size(1.24e6)] == [
        "24 B",
        "52.6 B",
        "111 kB",
        "1.24 MB",
    ]


def test_a_share_that_is_not_zero_does_not_read_as_zero() -> None:
    assert [share(0.0), share(0.0001), share(0.5414)] == ["0.0 %", "<0.1 %", "54.1 %"]


def test_a_share_is_a_percentage_and_another_ratio_is_not() -> None:
    assert value(0.55, "share") == "55.0 %"
    assert value(4.1, "1") == "4.10"


def test_a_gauge_with_unit_1_is_a_share() -> None:
    assert gauge_value(0.996, "1") == "99.6 %"
    assert gauge_value(1.38e9, "Hz") == "1.38 GHz"


def test_a_column_has_one_unit_and_shows_parts_of_a_thousandth() -> None:
    scale = Scale.column(1.4642)

    assert [scale(1.4642), scale(0.0063), scale(0.00002), scale(0.0)] == [
        "1,464.2",
        "6.3",
        "<0.1",
        "0.0",
    ]
    assert scale.full(0.0063) == "6.3 ms"


def test_a_cell_without_a_figure_is_a_dash() -> None:
    assert Scale.column(1)(None) == "–"
