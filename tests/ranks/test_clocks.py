"""One clock for all ranks, with an honest bound."""

from dataclasses import replace

import numpy as np
from ranks.made_up import MS, Training, always, train

from feedline.analysis.ranks.aligned_clocks import align
from feedline.analysis.ranks.match import match
from feedline.analysis.traces.collectives import RankClock


def errors(plan, made, alignment):
    """ns: how far the starts of the first bucket are from where they were."""
    matched = match(made.ranks)
    start = alignment.reference(matched.start)[:: len(plan.buckets)]
    true = made.lateness - made.lateness[:, :1]
    return np.abs(start - start[:, :1] - true)


def test_measured_clocks_off_by_seconds_and_drifting_are_put_right():
    plan = Training(
        ranks=3,
        steps=40,
        offset={1: 7_000.0, 2: -3_000.0},
        drift={1: 80.0},
        late=always(2, range(40), "wait", 20.0),
    )
    made = train(plan)

    alignment = align(made.ranks, match(made.ranks))

    assert alignment.how == "measured" and alignment.bound == 40_000
    assert errors(plan, made, alignment).max() < 3_000


def test_passive_alignment_stays_within_its_bound():
    plan = Training(
        ranks=3,
        steps=200,
        offset={1: 7_000.0, 2: -3_000.0},
        drift={1: 20.0},
        unclear=0.15,
        measured=False,
        jitter=1.0,
    )
    made = train(plan)

    alignment = align(made.ranks, match(made.ranks))

    assert alignment.how == "collective ends" and 10_000 < alignment.bound < 300_000
    assert (errors(plan, made, alignment) <= alignment.bound).mean() > 0.99


def test_a_measured_clock_that_cannot_be_right_is_noticed_and_replaced():
    plan = Training(ranks=2, steps=40, offset={1: 500.0}, late=always(1, range(40), "wait", 10.0))
    made = train(plan)
    wrong = RankClock(np.zeros(1, np.int64), np.zeros(1, np.int64), 10_000.0)
    ranks = [made.ranks[0], replace(made.ranks[1], clock=wrong)]

    alignment = align(ranks, match(ranks))

    assert alignment.how == "collective ends" and "is wrong: " in alignment.notes[0]
    assert errors(plan, made, alignment).max() < MS


def test_ranks_without_common_collectives_cannot_be_compared():
    made = train(Training(ranks=2, steps=1, measured=False, buckets=(1000,)))

    alignment = align(made.ranks, match(made.ranks))

    assert alignment.bound == np.inf and "too few to align their clocks" in alignment.notes[0]
