"""Bandwidths as nccl-tests count them, and the verdict on the network."""

from dataclasses import replace

import pytest
from ranks.made_up import MB, Training, always, train

from feedline.analysis.ranks import bandwidth
from feedline.analysis.ranks.cross_rank import combine
from feedline.analysis.traces.collectives import bus_factor, operation
from feedline.profiler.ceilings import Ceiling, Ceilings


def kinds(ranks):
    return bandwidth.collective_kinds(combine(ranks))


@pytest.mark.parametrize("name,meant,factor", [
    ("allreduce_", "all_reduce", 1.5), ("c10d::_allgather_base_", "all_gather", 0.75), ("_reduce_scatter_base_", "reduce_scatter", 0.75),
    ("alltoall_base_", "all_to_all", 0.75), ("broadcast_", "broadcast", 1.0), ("reduce_", "reduce", 1.0), ("scatter_", "scatter", 0.75),
    ("ncclDevKernel_AllReduce_Sum_f32_RING_LL", "all_reduce", 1.5), ("gather_", "gather", 0.75), ("recv_any_source_", "recv", 1.0),
])  # fmt: skip
def test_the_bus_factor_of_four_ranks_is_that_of_nccl_tests(name, meant, factor):
    assert operation(name) == meant and bus_factor(name, 4) == factor


@pytest.mark.parametrize("ms", [0.0, 60.0])
def test_bus_bandwidth_is_the_links_however_late_a_rank_is(ms):
    made = train(
        Training(ranks=4, buckets=(20 * MB,), link=1e9, late=always(1, range(30), "wait", ms))
    )

    (kind,) = kinds(made.ranks)

    assert kind.busbw_gbps == pytest.approx(1.0, rel=0.01) and kind.algbw_gbps == pytest.approx(
        1 / 1.5, rel=0.01
    )
    assert (kind.count, kind.n, kind.bytes) == (30, 4, 20 * MB)


def test_buckets_that_queue_behind_each_other_are_not_slower_for_it():
    made = train(Training(ranks=2, buckets=(30 * MB, 30 * MB, 30 * MB), backward=6.0))

    assert kinds(made.ranks)[0].busbw_gbps == pytest.approx(1.0, rel=0.02)


def probe(rate, nbytes=25 * MB):
    settings = {"backend": "nccl", "ranks": 4, "bytes": nbytes, "bus_bytes_per_s": rate}
    return Ceiling(
        "all_reduce/nccl 25 MiB", "all_reduce", rate / 1.5, unit="B/s", settings=settings
    )


@pytest.mark.parametrize(
    "rate,words",
    [
        (1.05e9, "as fast as the network allows"),
        (1.6e9, "slower than it should be"),
        (4e9, "much too slow"),
        (0.5e9, "not the limit"),
    ],
)
def test_the_verdict_is_in_words(rate, words):
    (kind,) = kinds(train(Training(ranks=4, buckets=(20 * MB,))).ranks)

    against = bandwidth._verdict(kind, Ceilings([probe(rate)]))

    assert words in against.message and against.share == pytest.approx(1e9 / rate, rel=0.02)


def test_the_probe_of_the_most_similar_size_is_taken():
    (kind,) = kinds(train(Training(ranks=4, buckets=(20 * MB,))).ranks)

    rate, _ = bandwidth._measured_ceiling(
        Ceilings([probe(3e8, 1 << 20), probe(2e9), probe(9e9, 1 << 33)]), kind
    )

    assert rate == 2e9


def test_a_specified_link_goes_before_the_probe():
    (kind,) = kinds(train(Training(ranks=4, buckets=(20 * MB,))).ranks)

    assert bandwidth._verdict(kind, Ceilings([probe(9e9)]), 2e9).share == pytest.approx(
        0.5, rel=0.02
    )


def test_without_anything_to_compare_with_nothing_is_judged():
    (kind,) = kinds(train(Training(ranks=4, buckets=(20 * MB,))).ranks)

    against = bandwidth._verdict(kind, None)

    assert against.share is None and "to judge it, give the link's speed" in against.message


def test_sizes_that_are_known_are_not_called_unknown_where_nothing_was_measured():
    ranks = [replace(one, steps=one.steps[:0]) for one in train(Training(ranks=2)).ranks]
    together = combine(ranks)

    told = bandwidth.judge_network(bandwidth.collective_kinds(together), together).message

    assert told == "no collective was measured within a step, so the bandwidth is unknown"
