"""What a study says in the end."""

from feedline.analysis.scaling.efficiency import Point, compare_points
from feedline.analysis.scaling.more_ranks import ThroughputPrediction
from feedline.analysis.scaling.study import _conclude, _disagreement, _shape_of

FOUR = compare_points([Point(1, 100.0), Point(2, 160.0), Point(4, 200.0)])
EIGHT = [ThroughputPrediction(8, 150.0, 120.0, 190.0, "USL")]


def test_a_law_that_falls_where_another_rises_is_said_and_neither_is_taken_for_the_prediction():
    (said,) = _disagreement(FOUR[-1], {"USL": {8: 150.0, 2: 10.0}, "bucket replay": {8: 380.0}})

    assert said.startswith(
        "predictions for 8 ranks disagree: from 200 samples/s with 4 ranks, bucket replay rises "
        "to 380, but USL falls to 150"
    )
    concluded = _conclude(FOUR, "samples/s", EIGHT, "", [said])
    assert "Predictions for 8 ranks disagree" in concluded and "150 samples/s" not in concluded


def test_laws_that_both_rise_or_stay_do_not_contradict_each_other():
    assert _disagreement(FOUR[-1], {"USL": {8: 300.0}, "bucket replay": {8: 380.0}}) == []
    assert _disagreement(FOUR[-1], {"USL": {8: 199.0}, "bucket replay": {8: 380.0}}) == []


def test_added_ranks_that_bring_little_are_named_with_what_they_bring():
    said = _conclude(FOUR, "samples/s", [], "", [])

    assert "Each of the 2 ranks added to 2 contributes 20.0 % of a single rank." in said


def test_what_lies_within_the_noise_is_not_advised_upon():
    slower = [Point(1, 300.0, 250.0, 350.0), Point(4, 1000.0, 700.0, 1300.0)]
    said = _conclude(
        compare_points([*slower, Point(8, 950.0, 300.0, 1600.0)]), "samples/s", [], "", []
    )

    assert "more ranks are slower" not in said and "contributes" not in said


def test_a_time_that_grows_within_the_noise_is_not_called_nothing():
    noisy = [Point(n, 100.0 * n, 99.0 * n, 101.0 * n) for n in (1, 2)]
    shape = _shape_of([*noisy, Point(4, 320.0, 220.0, 420.0)], "weak")

    assert shape.name == "unclear"
    assert shape.message.endswith("grows by 25.0 %, within the noise of the measurement")


def test_a_prediction_stands_with_its_interval_and_beside_the_most_ranks_measured():
    assert (
        "Prediction for 8 ranks: 150 samples/s (120 to 190), 0.750 times the rate of 4 ranks."
        in _conclude(FOUR, "samples/s", EIGHT, "", [])
    )


def test_a_late_rank_and_a_busy_machine_are_part_of_it():
    busy = compare_points([Point(1, 100.0), Point(2, 160.0, without_cpu=0.2)])
    said = _conclude(busy, "samples/s", [], "with 2 ranks, rank 1 is 40 ms late", [])

    assert (
        "With 2 ranks, rank 1 is 40 ms late. Ranks waited for CPUs during the measurement" in said
    )


def test_one_number_of_ranks_is_nothing_to_compare():
    said = _conclude(FOUR[:1], "samples/s", [], "", [])
    assert (
        said
        == "1 rank: 100 samples/s; to compare it, measure more with `feedline scale --ranks 1,2 "
        "-- SCRIPT`."
    )


def test_what_just_failed_is_not_advised():
    assert (
        _conclude(FOUR[:1], "samples/s", [], "", [], failed=2)
        == "1 rank: 100 samples/s. With 2 ranks, the training failed."
    )
    assert "With 8 ranks, the training failed." in _conclude(
        FOUR, "samples/s", [], "", [], failed=8
    )
