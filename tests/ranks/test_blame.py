"""Who was late, in which phase, and whether it is the same one again and again."""

from dataclasses import replace

import pytest
from ranks.made_up import MS, Training, always, train

from feedline.analysis.ranks import blame
from feedline.analysis.ranks.comparison import _compare_collectives, _part_of_sample
from feedline.analysis.ranks.cross_rank import combine
from feedline.analysis.traces.collectives import UNKNOWN_HOST


def blamed(ranks, first=0):
    found = blame.blame_steps(combine(ranks))
    return found, blame.list_late_ranks(found, ranks, first)


@pytest.mark.parametrize("phase", ["wait", "forward", "backward"])
def test_the_late_rank_its_phase_and_its_lateness_are_found(phase):
    made = train(Training(late=always(2, range(30), phase, 25.0), offset={1: 900.0}, jitter=0.5))

    found, (late, *_) = blamed(made.ranks)

    assert late.rank == 2 and late.phase == phase and late.persistent
    assert (found.column[1:] == 2).mean() > 0.95
    assert abs(late.late_s - 0.025) < 0.001 and abs(late.excess_s - 0.025) < 0.001


def test_a_slow_optimizer_is_blamed_in_the_next_step():
    made = train(Training(late=always(1, range(30), "optimizer", 25.0)))

    found, (late, *_) = blamed(made.ranks)

    assert (
        (late.rank, late.phase) == (1, "optimizer")
        and found.column[0] == -1
        and (found.column[1:] == 1).all()
    )


def test_time_that_no_stage_claims_is_other():
    made = train(Training(late=always(1, range(30), "wait", 25.0)))
    ranks = [
        replace(one, stages={name: spans for name, spans in one.stages.items() if name != "wait"})
        for one in made.ranks
    ]

    _, (late, *_) = blamed(ranks)

    assert (late.rank, late.phase) == (1, "other")


def test_nobody_is_late_by_less_than_the_clocks_can_tell():
    made = train(Training(late=always(2, range(30), "wait", 0.03)))  # bound: 0.04 ms

    assert (blamed(made.ranks)[0].column == -1).all()


def test_another_rank_in_each_step_is_not_persistent():
    late = {(step, step % 4): ("wait", 25.0) for step in range(40)}

    _, lates = blamed(train(Training(late=late, steps=40)).ranks)

    assert {one.rank for one in lates} == {0, 1, 2, 3} and not any(one.persistent for one in lates)


def test_two_ranks_late_in_turns_are_not_one_straggler_however_many_steps_there_are():
    late = {
        (step, 0 if step % 12 < 7 else 1): ("forward", 30.0) for step in range(600)
    }  # 4 sigma from chance

    _, lates = blamed(train(Training(ranks=2, late=late, steps=600)).ranks)

    assert [round(one.steps / one.late_steps, 2) for one in lates] == [0.58, 0.42] and not any(
        one.persistent for one in lates
    )


def test_a_rank_that_alone_costs_is_the_straggler_where_others_are_late_by_little_more_often():
    little = {(step, step % 3): ("forward", 0.5) for step in range(60)}
    seldom = {(step, 2): ("optimizer", 400.0) for step in range(5, 60, 6)}

    _, lates = blamed(train(Training(ranks=3, late=little | seldom, steps=60)).ranks)

    assert [(one.rank, one.persistent, one.steps, one.late_steps) for one in lates] == [
        (2, True, 9, 9)
    ]


def test_a_rank_that_is_late_again_and_again_goes_before_one_that_rarely_costs_more():
    rarely = {(step, 0): ("wait", 400.0) for step in range(5, 40, 10)}
    often = {
        key: late
        for key, late in always(1, range(40), "wait", 20.0).items()
        if (key[0], 0) not in rarely
    }

    _, (first, second) = blamed(train(Training(late=often | rarely, steps=40)).ranks)

    assert (first.rank, first.persistent, second.rank, second.persistent) == (1, True, 0, False)
    assert second.waited_s * second.steps > first.waited_s * first.steps


def test_all_ranks_of_a_host_that_are_late_together_are_told_from_one_of_them():
    both = always(2, range(0, 40, 2), "wait", 25.0) | always(3, range(1, 40, 2), "wait", 25.0)
    made = train(Training(steps=40, late=both, hosts=("a", "b")))
    one = train(Training(steps=40, late=always(2, range(40), "wait", 25.0), hosts=("a", "b")))

    assert [late.whole_host for late in blamed(made.ranks)[1]][:2] == [True, True]
    assert not blamed(one.ranks)[1][0].whole_host


def test_a_host_that_is_unknown_is_not_taken_for_another_one():
    made = train(Training(ranks=2, late=always(1, range(30), "wait", 25.0)))
    ranks = [made.ranks[0], replace(made.ranks[1], host=UNKNOWN_HOST)]

    assert not blamed(ranks)[1][0].whole_host
    assert _compare_collectives(ranks).communication.hosts is None
    assert _compare_collectives(made.ranks).communication.hosts == 1


def test_a_rank_whose_steps_are_numbered_from_another_one_is_blamed_in_the_right_steps():
    made = train(Training(ranks=3, late=always(2, range(10, 12), "wait", 25.0)))
    later = replace(made.ranks[2], steps=made.ranks[2].steps[4:])

    found, _ = blamed([*made.ranks[:2], later])

    assert (found.column >= 0).nonzero()[0].tolist() == [10, 11]


def test_what_of_a_sample_takes_longer_is_named():
    costs = {
        0: {"read": 1e-3, "decode": 4e-3, "total": 5e-3},
        1: {"read": 1e-3, "decode": 5e-3},
        2: {"read": 1.2e-3, "decode": 20e-3, "total": 1.0},
    }

    assert _part_of_sample(costs, 2) == "decode"
    assert _part_of_sample({2: costs[2]}, 2) is None


def test_lateness_is_that_of_the_clocks_truth_in_every_step():
    made = train(Training(ranks=3, late=always(1, range(5, 30), "wait", 12.0), jitter=2.0, seed=4))

    found, _ = blamed(made.ranks)

    assert (
        abs(found.late[10] - (made.lateness[10, 1] - sorted(made.lateness[10, [0, 2]])[0])) < 2 * MS
    )


def test_a_bucket_that_has_arrived_is_no_moment_at_which_ranks_begin_anew():
    made = train(
        Training(
            ranks=3,
            buckets=(1_000_000,) * 4,
            backward=60.0,
            late=always(1, range(30), "wait", 8.0),
            jitter=3.0,
        )
    )

    found, _ = blamed(made.ranks)

    late = [step for step in range(1, 30) if found.column[step] == 1]
    assert len(late) > 20
    assert all(found.excess["wait"][step] > 4 * MS for step in late)


@pytest.mark.parametrize(
    ("own", "part"),
    [
        ({"read": 1e-3, "decode": 9e-3, "collate": 1e-3}, "decode"),
        ({"read": 1e-3, "decode": 4e-3, "collate": 1.001e-3}, None),
        ({"read": 2e-3, "decode": 5e-3, "collate": 2e-3}, None),
        ({}, None),
    ],
    ids=["one stage is slow", "samples are as fast", "no stage is half of it", "not measured"],
)
def test_a_part_of_samples_is_blamed_only_where_they_are_slow_by_it(own, part):
    """A rank with fewer workers is late although its samples take no longer."""
    usual = {"read": 1e-3, "decode": 4e-3, "collate": 1e-3}

    assert _part_of_sample({0: usual, 1: usual, 2: own}, 2) == part
