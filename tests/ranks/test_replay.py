"""The bucket timeline replayed: the run itself, and what would be different."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from ranks.made_up import MB, Training, always, train, with_table

from feedline.analysis.ranks.buckets import NoTimeline, _share, cut_timeline
from feedline.analysis.ranks.comparison import (
    _backward_passes,
    _compare_collectives,
    _fit_link,
    _micro_batch_seconds,
)
from feedline.analysis.ranks.cross_rank import combine
from feedline.analysis.ranks.replay import BucketReplay, _bucket_edges, _split_ready


def asked(ranks, **more):
    together = combine(ranks)
    made = cut_timeline(together)
    return BucketReplay(made, _fit_link(made, together), **more)


def truth(plan):
    return train(plan).periods[1:].mean() / 1e9


@pytest.mark.parametrize("ms", [0, 20, 50, 80])
def test_the_replayed_step_is_the_measured_one_and_without_the_late_rank_the_healthy_one(ms):
    plan = Training(ranks=3, late=always(2, range(40), "wait", float(ms)), steps=40, jitter=1.0)
    made = train(plan)

    replay = asked(made.ranks)

    assert replay.base.mean() == pytest.approx(made.periods[1:].mean() / 1e9, rel=0.01)
    assert replay.cost(2).mean() * 1e3 == pytest.approx(ms, abs=1.0)
    assert replay.no_straggler(2).step_s == pytest.approx(truth(replace(plan, late={})), abs=1e-3)


def test_a_link_that_stalls_now_and_then_does_so_in_the_replay_too():
    stalls = dict.fromkeys([(7, 2), (19, 0), (30, 2), (31, 1)], 45.0)
    plan = Training(
        ranks=3, late=always(2, range(40), "wait", 20.0), stalls=stalls, steps=40, jitter=1.0
    )
    made = train(plan)
    healthy = truth(replace(plan, late={}))

    replay = asked(made.ranks)
    answer = replay.no_straggler(2)

    np.testing.assert_allclose(replay.base, made.periods[1:] / 1e9, rtol=0.005)
    assert (
        answer.step_s == pytest.approx(healthy, abs=1e-3) and answer.low <= healthy <= answer.high
    )
    assert replay.bucket_size(100).step_s > healthy  # the bytes that were slow still are


def test_a_faster_link_is_predicted():
    plan = Training(ranks=4, buckets=(MB, 25 * MB, 25 * MB), jitter=0.5)

    answer = asked(train(plan).ranks).faster_link(2.0)

    assert answer.step_s == pytest.approx(truth(replace(plan, link=2e9)), rel=0.02)
    assert answer.low <= truth(replace(plan, link=2e9)) <= answer.high


def test_gradients_of_half_the_size_are_predicted_and_refused_where_they_are_half_already():
    plan = Training(ranks=4, buckets=(MB, 25 * MB, 25 * MB))
    made = train(plan)
    half = replace(plan, buckets=tuple(size // 2 for size in plan.buckets))

    assert asked(made.ranks).half_gradients().step_s == pytest.approx(truth(half), rel=0.02)
    already = asked(
        [replace(one, dtypes=["torch.bfloat16"]) for one in made.ranks]
    ).half_gradients()
    assert already.step_s is None and "bfloat16 already" in already.why


def test_larger_buckets_are_predicted():
    plan = Training(ranks=4, buckets=(MB, *[5 * MB] * 8), backward=40)
    made = train(plan)
    one_late_bucket = replace(plan, buckets=(41 * MB,))

    answer = asked(made.ranks).bucket_size(100)

    assert answer.step_s == pytest.approx(truth(one_late_bucket), rel=0.03)


def test_bucket_sizes_are_refused_where_all_buckets_are_alike():
    answer = asked(train(Training(buckets=(4 * MB, 4 * MB))).ranks).bucket_size(1)

    assert answer.step_s is None and "the cost of one more is unknown" in answer.why


def test_accumulation_saves_the_transfer_of_all_batches_but_one():
    plan = Training(ranks=2, buckets=(20 * MB,))
    made = train(plan)
    step, compute = truth(plan), (plan.wait + plan.forward + plan.backward) / 1e3

    answer = asked(made.ranks).accumulate(4, _micro_batch_seconds(made.ranks))

    assert answer.step_s == pytest.approx((step + 3 * compute) / 4, rel=0.01)


def test_a_program_that_sends_gradients_in_each_of_its_backward_passes_is_spared_all_but_one_by_no_sync():
    plan = Training(ranks=2, buckets=(20 * MB,), optimizer=0, steps=32)
    ranks = [accumulated(one, 4) for one in train(plan).ranks]

    answer = asked(ranks).no_sync(_backward_passes(ranks[0], cut_timeline(combine(ranks))))

    compute = (plan.wait + plan.forward + plan.backward) / 1e3
    assert answer.value == 4 and answer.step_s == pytest.approx(
        4 * compute + (truth(plan) - compute), rel=0.01
    )
    predictions = {one.id for one in _compare_collectives(ranks).communication.what_if}
    assert "no_sync" in predictions and "accumulation" not in predictions, "it accumulates already"


def test_no_sync_is_refused_to_a_program_that_has_it():
    made = train(Training(ranks=2, buckets=(20 * MB,), steps=32))
    ranks = []
    for one in [accumulated(one, 4) for one in made.ranks]:
        table = one.table[3::4].copy()
        table["sequence"] = np.arange(len(table))
        ranks.append(with_table(one, table))

    answer = asked(ranks).no_sync(_backward_passes(ranks[0], cut_timeline(combine(ranks))))

    assert (
        answer.value == 4
        and answer.step_s is None
        and "not sent in every backward pass" in answer.why
    )


def accumulated(one, passes):
    """The same rank, with an update after every so many of its backward passes only."""
    steps = one.steps.reshape(-1, passes, 2)
    return replace(one, steps=np.stack([steps[:, 0, 0], steps[:, -1, 1]], 1))


@pytest.mark.parametrize(("link", "worth"), [(2e7, True), (2e9, False)])
def test_half_the_bytes_gain_on_gloo_only_where_sending_takes_longer_than_casting(link, worth):
    made = train(Training(ranks=2, buckets=(MB, 20 * MB, 20 * MB), link=link, backend="gloo"))

    answer = asked(made.ranks).half_gradients()

    assert (answer.high < answer.step_s + answer.gain_s) == worth


def test_what_a_program_does_between_its_steps_is_not_spared_by_accumulation():
    plan = Training(ranks=2, buckets=(20 * MB,), between=30)
    made = train(plan)
    step, compute = truth(plan), (plan.wait + plan.forward + plan.backward + plan.between) / 1e3

    answer = asked(made.ranks).accumulate(4, _micro_batch_seconds(made.ranks))

    assert answer.step_s == pytest.approx((step + 3 * compute) / 4, rel=0.01)


def test_links_beyond_all_that_was_measured_are_refused():
    answer = asked(train(Training()).ranks).faster_link(1000.0)

    assert answer.step_s is None and answer.why


def test_a_faster_link_cannot_beat_what_the_ranks_themselves_reach():
    plan = Training(buckets=(MB, 25 * MB, 25 * MB))
    ranks = train(plan).ranks

    assert asked(ranks, limit=1.5e9).faster_link(10).step_s == pytest.approx(
        asked(ranks).faster_link(1.5).step_s, rel=0.02
    )


def test_what_is_no_data_parallel_training_is_refused_with_the_reason():
    made = train(Training())
    ranks = [replace(one, names=["_allgather_base_"]) for one in made.ranks]

    with pytest.raises(NoTimeline, match="all_gather outside DistributedDataParallel's buckets"):
        asked(ranks)


def test_ranks_that_only_meet_at_barriers_are_refused():
    with pytest.raises(NoTimeline, match="move no bytes"):
        asked(train(Training(buckets=(0,))).ranks)


def test_too_few_steps_are_refused():
    with pytest.raises(NoTimeline, match="too few"):
        asked(train(Training(steps=3)).ranks)


def test_a_replay_that_misses_the_measured_step_predicts_nothing():
    replay = asked(train(Training()).ranks)
    off = BucketReplay(replay.made, replace(replay.link, bytes_per_s=replay.link.bytes_per_s / 20))

    assert (
        off.faster_link(2).step_s is None
        and "misses the measured step by" in off.faster_link(2).why
    )


@settings(max_examples=60, deadline=None)
@given(
    st.lists(st.tuples(st.floats(0, 10), st.floats(0.01, 5)), min_size=1, max_size=8),
    st.integers(1, 3),
    st.floats(0, 0.5),
)
def test_a_shared_link_is_never_faster_than_its_bandwidth_nor_slower_than_one_after_the_other(
    jobs, slots, alpha
):
    jobs = sorted(jobs)
    done = _share([(at, alpha, took) for at, took in jobs], slots)
    one_by_one = 0.0
    for at, took in jobs:
        one_by_one = max(at, one_by_one) + took + alpha

    assert done <= one_by_one + 1e-6
    assert done >= max(at + took + alpha for at, took in jobs) - 1e-6
    assert done >= jobs[0][0] + sum(took for _, took in jobs) - 1e-6


@settings(max_examples=60, deadline=None)
@given(st.integers(1, 200 * MB), st.integers(MB // 16, 300 * MB))
def test_new_buckets_hold_the_same_bytes(total, cap):
    edges = _bucket_edges(total, cap)

    assert (
        edges[0] == 0
        and edges[-1] == total
        and (np.diff(edges) > 0).all()
        and np.diff(edges).max() <= max(cap, MB + 50_000)
    )


def test_the_measured_buckets_split_at_their_own_edges_are_ready_as_they_were():
    ready = np.sort(np.random.default_rng(0).integers(0, 10**6, (5, 4, 2)), axis=1)
    nbytes = np.array([1, 5, 5, 3])

    assert (_split_ready(ready, nbytes, np.array([0, 1, 6, 11, 14])) == ready).all()
