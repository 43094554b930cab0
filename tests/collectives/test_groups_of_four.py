"""Groups of two in a world of four, and a rank that is killed in the middle of a collective."""

import signal

import pytest


@pytest.fixture(params=range(4), ids=lambda rank: f"rank{rank}")
def rank(request, four):
    assert four[request.param].said is not None, four[request.param].err[-3000:]
    return four[request.param]


def test_n_is_that_of_the_group(rank):
    seen = rank.seen("pairs")

    assert {one.ranks for one in seen} == {(0, 2) if rank.number % 2 == 0 else (1, 3)}
    assert [(one.name, one.nbytes, one.sequence) for one in seen] == [
        ("all_reduce", 400, n) for n in range(3)
    ] + [("all_gather", 800, 3)]


def test_every_rank_knows_the_whole_message(rank):
    seen = [(one.name, one.nbytes) for one in rank.seen("whole")]

    assert seen == [
        ("all_reduce", 400),
        ("gather", 1600),
        ("scatter", 1600),
        ("reduce_scatter", 1600),
    ]


def test_neighbours_in_a_ring_are_groups_of_two(rank):
    me = rank.number
    seen = {(one.name, one.group, one.ranks) for one in rank.seen("ring")}

    left, right = (me - 1) % 4, (me + 1) % 4
    assert seen == {
        ("send", f"0 {me}>{right}", tuple(sorted((me, right)))),
        ("recv", f"0 {left}>{me}", tuple(sorted((left, me)))),
    }


def test_a_rank_that_is_killed_leaves_the_collective_that_it_had_begun(four):
    begun = four[3].seen("killed")

    assert four[3].code == -signal.SIGKILL
    assert [(one.name, one.nbytes, one.ended) for one in begun] == [("all_reduce", 4000, False)]


def test_the_others_learn_of_it_as_without_feedline(four):
    assert [(four[rank].code, four[rank].said["failed"]) for rank in range(3)] == [(0, True)] * 3


def test_numbers_are_the_same_on_all_ranks(four):
    common = [
        [(one.sequence, one.name) for one in rank.seen() if one.group == "0"] for rank in four
    ]

    assert common[0] == common[1] == common[2] == common[3]
