"""Of a launch that torchrun started again, only the last start is read: times of two starts say
nothing about each other.
"""

from pathlib import Path

import pytest

from feedline.profiler.store.layout import rank_folder
from feedline.profiler.store.manifest import Manifest
from feedline.profiler.store.run_folder import Run
from feedline.profiler.store.trainings import open_run


def opened(path: Path, *places: tuple[int, int]) -> Run:
    for place in places:
        rank_folder(path, *place).mkdir()
        Manifest().write(rank_folder(path, *place))
    return open_run(path)


def test_a_rank_that_did_not_come_back_is_named_and_left_out(tmp_path):
    run = opened(tmp_path, (0, 0), (1, 0), (2, 0), (0, 1), (1, 1))

    assert {number: rank.restart for number, rank in run.ranks.items()} == {0: 1, 1: 1}
    assert run.notes == [
        "the launcher started the ranks again 1 time: only the last start is shown",
        "rank 2 did not come back after the last restart",
    ]


@pytest.mark.parametrize(
    "places,notes",
    [
        ([(0, 0), (1, 0)], []),
        ([(0, 2), (0, 11)], ["the launcher started the ranks again 11 times"]),
    ],
)
def test_ranks_that_all_came_back_are_not_named(tmp_path, places, notes):
    assert [note.split(":")[0] for note in opened(tmp_path, *places).notes] == notes


def test_a_last_start_of_which_nothing_was_written_yet_leaves_the_one_before(tmp_path):
    rank_folder(tmp_path, 0, 1).mkdir()

    run = opened(tmp_path, (0, 0), (1, 0))

    assert {number: rank.restart for number, rank in run.ranks.items()} == {0: 0, 1: 0}
    assert len(run.notes) == 1 and "rank0-restart1" in run.notes[0]
