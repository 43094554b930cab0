"""A training under the tap computes what it computes alone, and ends as it ends alone."""

import pytest
from collectives.launching import launch, say_what_went_wrong
from collectives.programs.destroyed_in_flight import LATE_S


def test_parameters_and_random_numbers_are_bit_identical_before_in_and_after_a_recording(
    tmp_path, warm_python
):
    ranks = launch(tmp_path, "same_numbers.py", 2, warm=warm_python, recorded=False)
    say_what_went_wrong(ranks)

    for rank in ranks:
        assert rank.said["recorded"] == rank.said["alone"] == rank.said["after"]
        assert {one.name for one in rank.seen()} >= {"all_reduce", "all_gather", "reduce_scatter"}
        assert len(rank.seen()) > 100


@pytest.mark.parametrize(
    ("how", "code"), [pytest.param("returns", 0, marks=pytest.mark.long), ("raises", 1)]
)
def test_a_rank_that_leaves_with_collectives_in_flight_ends_as_it_would_alone(tmp_path, how, code):
    ranks = launch(tmp_path, "ends_in_flight.py", 2, how, warm=None)

    assert [rank.code for rank in ranks] == [0, code], ranks[1].err[-2000:]
    assert len(ranks[1].collectives.table) == 5


@pytest.mark.long
def test_a_group_is_destroyed_with_a_collective_in_flight_as_it_would_be_alone(tmp_path):
    ranks = launch(tmp_path, "destroyed_in_flight.py", 2, warm=None)
    say_what_went_wrong(ranks)

    assert ranks[0].said["destroy_s"] < LATE_S / 2  # torch does not wait for it either
    assert [rank.said["sum"] for rank in ranks] == [2, 2]
    assert all(one.ended for one in ranks[0].seen())


def test_collectives_of_fake_tensors_go_where_they_go_alone(tmp_path, warm_python):
    (rank,) = launch(tmp_path, "under_modes.py", 1, warm=warm_python)

    assert rank.code == 0, rank.err[-2000:]
    assert [one.name for one in rank.seen()].count("all_reduce") >= 2
