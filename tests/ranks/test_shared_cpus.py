"""Ranks of one machine without a late one: all of them compute at the same time."""

from dataclasses import replace

import pytest
from ranks.made_up import Training, always, train
from ranks.test_replay import truth

from feedline.analysis.ranks.comparison import _compare_collectives
from feedline.analysis.ranks.shared_cpus import RankCpu, needed_s

MS = 1e-3
#: As a rank of the training below that has 2 CPUs for two: its main thread computes 12 of 25 ms,
#: and a worker 6.
RANK = RankCpu("a", 2.0, cpu_s=18 * MS, making_s=6 * MS, batch_s=6 * MS, busy_s=12 * MS)


def test_two_ranks_fit_on_as_many_cpus_as_they_have_threads():
    # half of the workers' time may fall into the 13 ms in which the main threads sleep
    assert needed_s([replace(RANK, cpus=4.0)] * 2, asleep_s=13 * MS) == pytest.approx(
        (13 + 30 / 4) * MS
    )
    assert needed_s([RANK] * 2, asleep_s=13 * MS) == pytest.approx((13 + 30 / 2) * MS)
    assert needed_s([RANK] * 2, asleep_s=0.0) == pytest.approx(36 / 2 * MS)


def test_ranks_of_other_machines_take_no_cpus():
    assert needed_s([RANK, replace(RANK, machine="b")], asleep_s=13 * MS) == pytest.approx(
        (13 + 15 / 2) * MS
    )


def test_workers_that_make_a_batch_all_the_time_do_so_while_the_others_sleep_too():
    busy = replace(RANK, making_s=20 * MS, batch_s=200 * MS, cpu_s=32 * MS)

    needed = needed_s([busy] * 2, asleep_s=80 * MS)

    assert needed < (80 + 2 * 32 / 2) * MS
    assert needed == pytest.approx(
        (80 + 2 * (12 + 20 * (needed / MS - 80) / (needed / MS)) / 2) * MS, rel=1e-3
    )


def told(cpus: dict[int, RankCpu] | None):
    plan = Training(ranks=2, late=always(1, range(40), "wait", 40.0), steps=40, jitter=1.0)
    compared = _compare_collectives(train(plan).ranks, cpus=cpus)
    assert compared is not None
    return plan, next(one for one in compared.communication.what_if if one.id == "rank_on_time")


def test_a_rank_on_time_competes_with_the_others_for_their_cpus():
    plan, free = told(None)
    _, shared = told(
        {0: replace(RANK, cpu_s=70 * MS, busy_s=40 * MS), 1: replace(RANK, cpu_s=30 * MS)}
    )

    assert free.step_s == pytest.approx(truth(replace(plan, late={})), abs=1e-3)
    assert shared.step_s > free.step_s + 5 * MS
    assert shared.low <= free.step_s < shared.step_s < shared.high
    assert shared.step_s + shared.gain_s == pytest.approx(free.step_s + free.gain_s)


def test_ranks_with_cpus_enough_are_predicted_as_without_them():
    _, free = told(None)
    _, shared = told(dict.fromkeys((0, 1), replace(RANK, cpus=64.0)))

    assert (shared.step_s, shared.gain_s, shared.low, shared.high) == (
        free.step_s,
        free.gain_s,
        free.low,
        free.high,
    )


def test_a_fix_is_not_predicted_to_slow_the_step():
    _, shared = told(dict.fromkeys((0, 1), replace(RANK, cpu_s=1.0)))

    assert shared.gain_s == pytest.approx(0.0, abs=1e-9)
    assert shared.high <= shared.step_s * 1.05


def test_of_some_ranks_only_nothing_is_said_of_the_cpus():
    _, free = told(None)
    _, some = told({0: replace(RANK, cpu_s=1.0)})

    assert some == free


def test_a_rank_on_time_has_no_batches_before_its_workers_have_made_them():
    """While one rank was late, the workers of the others worked ahead."""
    _, free = told(None)
    slow = replace(RANK, cpus=64.0, batch_s=140 * MS, workers=2)
    _, held = told(dict.fromkeys((0, 1), slow))

    assert free.step_s < 70 * MS
    assert held.step_s == pytest.approx(140 / 2 * MS)
    assert held.low == pytest.approx(0.9 * 140 / 2 * MS)
    assert held.low < held.step_s < held.high
