"""Predictions: each law gives back what it was made of, intervals hold, and what cannot be known is
refused.
"""

from dataclasses import replace

import pytest
from scaling.made_up import SOURCE, points

from feedline.analysis.ranks.step_profile import Bucket, Ring, StepProfile
from feedline.analysis.scaling.efficiency import Point
from feedline.analysis.scaling.more_ranks import (
    ScalingBasis,
    _last_end,
    _ring_s,
    _step_s,
    _usl,
    fit_laws,
    predict,
)
from feedline.analysis.scaling.study import Noise, study

LINK = Ring(bandwidth=25e6, low=25e6, high=25e6, alpha_s=0.0, slots=2)
ANATOMY = StepProfile(
    0.100, (0.030, 0.090), (Bucket(0.050, 500e3), Bucket(0.070, 500e3), Bucket(0.090, 500e3))
)


def measured(
    anatomy: StepProfile, link: Ring, ranks: list[int], batch: float = 8, constant_s: float = 0.0
) -> list[Point]:
    """What a world in which the replay is true would measure."""
    steps = {n: _step_s(anatomy, n, link) + (constant_s if n > 1 else 0.0) for n in ranks}
    return [Point(n, n * batch / step, batch=batch) for n, step in steps.items()]


def test_a_bucket_that_is_alone_takes_the_time_of_a_ring():
    link = replace(LINK, alpha_s=1e-3)

    assert _last_end((Bucket(0.0, 1e6),), 4, link) == pytest.approx(_ring_s(1e6, 4, 25e6, 1e-3))


def test_a_slot_more_hides_the_latency_of_one_bucket_behind_the_other():
    link, both = replace(LINK, alpha_s=10e-3), (Bucket(0.0, 500e3), Bucket(0.0, 500e3))

    assert _last_end(both, 2, replace(link, slots=1)) == pytest.approx(2 * (0.020 + 0.020))
    assert _last_end(both, 2, link) == pytest.approx(0.020 + 0.040)


def test_what_ends_before_the_backward_costs_nothing():
    hidden = StepProfile(0.100, (0.030, 0.090), (Bucket(0.040, 250e3),))

    assert _step_s(hidden, 8, LINK) == pytest.approx(0.100)


def test_only_what_outlasts_the_backward_is_added():
    shown = StepProfile(0.100, (0.030, 0.090), (Bucket(0.080, 500e3),))

    assert _step_s(shown, 2, LINK) == pytest.approx(0.100 - 0.090 + 0.080 + 0.020)


def test_what_blocks_is_added_whole():
    assert _step_s(replace(ANATOMY, buckets=(), blocking=(1e6,)), 2, LINK) == pytest.approx(0.140)


def test_the_replay_predicts_a_world_in_which_it_is_true():
    true = {point.ranks: point for point in measured(ANATOMY, LINK, [1, 2, 3, 4], constant_s=0.005)}
    basis = ScalingBasis([true[1], true[2]], "weak", ANATOMY, LINK)

    for ranks in (3, 4):
        found = predict(basis, ranks)
        assert found.model == "bucket replay"
        assert found.samples_per_s == pytest.approx(true[ranks].samples_per_s, rel=1e-6)
        assert found.low < found.samples_per_s < found.high


def test_amdahl_gives_back_its_serial_part():
    serial = {n: 100 * n / (1 + 0.1 * (n - 1)) for n in (1, 2, 4)}
    law = _usl(points(serial))

    assert law.name == "Amdahl"
    assert law.parameters["sigma"] == pytest.approx(0.1)
    assert 8 / law.rank_s(8) == pytest.approx(100 * 8 / 1.7)


def test_usl_gives_back_both_its_parts():
    law = _usl(
        points({n: 100 * n / (1 + 0.05 * (n - 1) + 0.01 * n * (n - 1)) for n in (1, 2, 4, 8)})
    )

    assert (law.parameters["sigma"], law.parameters["kappa"]) == (
        pytest.approx(0.05),
        pytest.approx(0.01),
    )


def test_no_fitted_law_has_a_negative_part():
    law = _usl(points({1: 100, 2: 210, 4: 430}))

    assert (law.parameters["sigma"], law.parameters["kappa"]) == (0, 0)


def test_the_interval_from_one_and_two_ranks_holds_the_source_tables_eight():
    without_flag = {**SOURCE, 1: SOURCE[2] / 2}
    found = predict(ScalingBasis(points({n: without_flag[n] for n in (1, 2)}), "unknown"), 8)

    assert found.low < SOURCE[8] < found.high


def test_the_interval_grows_with_the_distance():
    basis = ScalingBasis(points({1: 100, 2: 190}), "weak")
    widths = [
        (one.high - one.low) / one.samples_per_s for one in (predict(basis, n) for n in (3, 4, 8))
    ]

    assert widths == sorted(widths) and widths[0] < widths[2]


@pytest.mark.parametrize(
    ("basis", "ranks", "why"),
    [
        (ScalingBasis(points({1: 100}), "weak"), 2, "two or more rank counts"),
        (ScalingBasis(points({1: 100, 2: 190}), "weak"), 9, "more than 4 times the 2"),
        (ScalingBasis(points({1: 100, 2: 190}), "mixed"), 4, "batch per rank"),
    ],
)
def test_what_cannot_be_known_is_refused_with_its_reason(basis, ranks, why):
    found = predict(basis, ranks)

    assert found.samples_per_s is None
    assert why in found.why


def test_the_replay_is_refused_where_it_does_not_explain_what_was_measured():
    slow = [Point(1, 8 / 0.1, batch=8), Point(2, 16 / 0.4, batch=8)]
    fitted, refused = fit_laws(ScalingBasis(slow, "weak", ANATOMY, LINK))

    assert "bucket replay" not in [law.name for law in fitted]
    assert any("unexplained" in why for why in refused)


def test_the_replay_is_refused_for_strong_scaling():
    fitted, refused = fit_laws(
        ScalingBasis([Point(1, 80, batch=16), Point(2, 150, batch=8)], "strong", ANATOMY, LINK)
    )

    assert [law.name for law in fitted] == ["Amdahl"]
    assert "constant batch per rank" in refused[0]


def test_a_study_says_that_a_flagged_base_is_left_out():
    found = study(points(SOURCE, batch=256), [16], noise=Noise(4096))

    assert len(found.flags) == 1 and found.flags[0].startswith("2 ranks reach 105.3 %")
    assert found.predictions[0].samples_per_s == pytest.approx(523_000, rel=0.01)
    assert [(one.ranks, one.predicted) for one in found.times] == [
        (1, False),
        (2, False),
        (4, False),
        (8, False),
        (16, True),
    ]


def test_no_replay_is_made_of_the_step_of_a_flagged_base():
    true = measured(ANATOMY, LINK, [1, 2, 4], constant_s=0.005)
    slow = replace(true[0], samples_per_s=true[0].samples_per_s / 2)

    whole, flagged = (
        study(found, [8], ScalingBasis((), "unknown", ANATOMY, LINK))
        for found in (true, [slow, *true[1:]])
    )

    assert (whole.predictions[0].model, whole.left_out) == ("bucket replay", [])
    assert flagged.flags and flagged.predictions[0].model == "Amdahl"
    assert flagged.left_out == [
        "no replay of gradient buckets: the smallest run, which they are read from, is flagged as "
        "too slow"
    ]
