"""Which rank a trace is of."""

from dataclasses import replace

import numpy as np
import pytest

from feedline.analysis.ranks.ingest_traces import _assign, _rank_in, _rank_of
from feedline.analysis.traces.trace_columns import EVENT_DTYPE, Trace
from feedline.profiler.errors import RankCollision

NOBODY = Trace("t.json", "kineto", None, None, 0, np.zeros(1, EVENT_DTYPE), ["a"], [])


@pytest.mark.parametrize(
    ("name", "rank"),
    [
        ("rank3.json", 3),
        ("trace_rank_3.json.gz", 3),
        ("RANK-12.1694128201545.pt.trace.json", 12),
        ("worker3_step_12.1694128201557.pt.trace.json.gz", 3),
        ("a100_rank3of8_healthy.json.gz", 3),
        ("sampled_3of128.json", 3),
        ("rank-0.Mar_18_2024.5_12.pt.trace.json", 0),
        ("rank007.json", 7),
        ("rank=5", 5),
        ("gpu-node-17_21587.1752829956515.pt.trace.json", None),
        ("2024-05-22_17-15-23.json", None),
        ("trace_step_500.json", None),
        ("resnet50_num_workers4_2021.json", None),
        ("pid21587.json", None),
        ("rank20240522.json", None),
        ("franka3.json", None),
        ("local_rank_1.json", None),
        ("rank1_to_rank2.json", None),
        ("9of8.json", None),
        ("epoch3of10.json", None),
        ("h100_owlv2.json", None),
    ],
)
def test_a_name_says_the_rank_or_nothing(name, rank):
    assert _rank_in(name) == rank


def test_the_content_is_believed_before_the_name_and_the_user_before_both():
    own = replace(NOBODY, rank=5)
    assert _rank_of(own, "rank3.json") == (5, "content")
    assert _rank_of(own, "rank3.json", 7) == (7, "argument")
    assert _rank_of(NOBODY, "a/rank3.json") == (3, "file name")
    assert _rank_of(NOBODY, "s3://bucket/rank3/trace.json") == (3, "file name")
    assert _rank_of(NOBODY, "trace.json") == (None, "unknown")


def test_two_traces_of_one_rank_are_an_error_that_names_both():
    three = replace(NOBODY, rank=3)
    with pytest.raises(RankCollision) as error:
        _assign([("a.json.gz", three), ("b.json.gz", three)])
    assert (
        str(error.value)
        == "rank 3 appears twice, in a.json.gz and b.json.gz: pass --rank FILE=N for one of them"
    )


def test_naming_the_ranks_parts_two_traces_that_claim_one():
    three = replace(NOBODY, rank=3)
    ranked = _assign(
        [("x/a.json.gz", three), ("b.json.gz", replace(three, source="b.json.gz"))],
        {"x/a.json.gz": 4},
    )
    assert [(index, trace.rank) for index, trace in ranked] == [(1, 3), (0, 4)]


def test_a_trace_alone_without_a_rank_is_rank_0_and_that_is_said():
    ((_, trace),) = _assign([("trace.json", NOBODY)])
    assert trace.rank == 0
    assert trace.notes == [
        "neither the trace nor its file name contains a rank: it is shown as rank 0"
    ]


def test_one_of_several_without_a_rank_is_an_error():
    with pytest.raises(RankCollision, match="neither .*b.json nor its name contains a rank"):
        _assign([("rank0.json", NOBODY), ("b.json", NOBODY)])
