"""Efficiency, marginal efficiency, Karp-Flatt, and the shape, on the source material's table and on
made-up ones.
"""

import pytest
from scaling.made_up import SOURCE, points

from feedline.analysis.scaling.efficiency import Point, compare_points
from feedline.analysis.scaling.launch_points import _repeated
from feedline.analysis.scaling.study import (
    Noise,
    _scaling_kind,
    _shape_of,
    _time_to_accuracy,
    _usable_points,
)


def ring(n: int) -> float:
    """Samples/s of ranks whose sample takes 1 ms and, in all, 0.4 ms of a ring's transfer."""
    return n / (1e-3 + 0.4e-3 * (n - 1) / n)


def shared(n: int) -> float:
    """Samples/s of ranks that stand in each other's way: 0.05 ms a sample for each other rank."""
    return n / (1e-3 + 0.05e-3 * (n - 1))


def test_the_source_table_gives_its_known_efficiencies():
    found = compare_points(points(SOURCE))

    assert [round(100 * row.efficiency, 1) for row in found] == [100.0, 105.3, 86.8, 70.3]
    assert [row.flagged for row in found] == [False, True, False, False]


def test_marginal_efficiency_is_of_the_added_ranks_alone():
    found = compare_points(points(SOURCE))

    assert [row.marginal and round(100 * row.marginal, 1) for row in found] == [
        None,
        110.6,
        68.3,
        53.8,
    ]


def test_karp_flatt_of_the_source_table():
    assert [
        row.karp_flatt and round(row.karp_flatt, 3) for row in compare_points(points(SOURCE))
    ] == [None, -0.050, 0.051, 0.060]


def test_an_efficiency_above_one_within_the_error_is_not_flagged():
    noisy = [Point(1, 100.0, 94.0, 106.0), Point(2, 206.0, 196.0, 216.0)]
    exact = [Point(1, 100.0, 99.9, 100.1), Point(2, 206.0, 205.9, 206.1)]

    assert [compare_points(noisy)[1].flagged, compare_points(exact)[1].flagged] == [False, True]


def test_a_bad_baseline_is_left_out_of_fits():
    assert [point.ranks for point in _usable_points(compare_points(points(SOURCE)))] == [2, 4, 8]


def test_without_one_rank_the_fewest_are_the_base_and_there_is_no_serial_fraction():
    found = compare_points(points({2: 200.0, 4: 300.0}))

    assert [row.efficiency for row in found] == [1.0, 0.75]
    assert [row.karp_flatt for row in found] == [None, None]


@pytest.mark.parametrize(
    ("batches", "kind"),
    [
        ((32, 32, 32), "weak"),
        ((32, 16, 8), "strong"),
        ((32, 32, 8), "mixed"),
        ((32, None, 8), "unknown"),
    ],
)
def test_the_kind_of_scaling_is_read_off_the_batches(batches, kind):
    measured = [
        Point(ranks, 1.0, batch=batch) for ranks, batch in zip((1, 2, 4), batches, strict=True)
    ]

    assert _scaling_kind(measured) == kind


def test_the_shape_of_the_source_table_is_linear():
    found = _shape_of(_usable_points(compare_points(points(SOURCE))), "unknown")

    assert found is not None and found.name == "linear"
    assert "latency" in found.message and "ring all-reduce limited by bandwidth" in found.message


@pytest.mark.parametrize(
    ("law", "name"),
    [
        (ring, "saturating"),
        (shared, "linear"),
        (lambda n: 1000.0 * n, "flat"),
        (lambda n: 100.0 if n == 1 else 90.0 * n, "once"),
    ],
)
def test_the_shape_tells_a_ring_from_a_shared_resource(law, name):
    found = _shape_of(points({n: law(n) for n in (1, 2, 4, 8)}), "weak")

    assert found is not None and found.name == name


def test_what_only_the_second_rank_adds_is_not_called_the_bandwidth_of_a_ring():
    jump = {1: 100.0, 2: 180.0, 4: 360.0, 8: 720.0}
    found, later = (
        _shape_of(points(table), "weak")
        for table in (jump, {n: rate for n, rate in jump.items() if n > 1} | {16: 1200.0})
    )

    assert found is not None and "where the second rank joins" in found.message
    assert later is not None and set(later.misfit) == {"linear", "saturating"}


def test_what_comes_with_the_first_ranks_together_is_not_said_of_the_second():
    found = _shape_of(points({1: 100.0, 8: 640.0, 16: 1280.0}), "weak")

    assert found is not None and found.name == "once"
    assert "all of it up to 8 ranks" in found.message and "second rank" not in found.message


def test_two_curves_that_fit_alike_are_named():
    rates = {1: 100.0, 2: 180.0, 4: 352.0}
    found = _shape_of(points(rates), "weak")

    assert found is not None and found.name == "unclear"
    assert found.message.endswith(
        "the curve of a ring all-reduce and a jump at the second rank fit equally well, so the "
        "cause is unclear"
    )


def test_the_shape_is_not_read_off_strong_scaling():
    assert _shape_of(points({n: ring(n) for n in (1, 2, 4, 8)}), "strong") is None


def test_time_to_accuracy_doubles_its_steps_at_the_critical_batch():
    assert _time_to_accuracy(Noise(1024, 1000), ranks=8, batch=128, step_s=0.1) == pytest.approx(
        200.0
    )


@pytest.mark.parametrize(
    ("rates", "median"), [([113.0, 296.0], 204.5), ([90.0, 300.0, 110.0], 110.0)]
)
def test_one_number_of_ranks_that_was_measured_more_than_once_has_the_median(rates, median):
    found = _repeated([Point(2, rate, rate - 5, rate + 5) for rate in rates])

    assert found.samples_per_s == median
    assert (found.low, found.high) == (min(rates) - 5, max(rates) + 5)
