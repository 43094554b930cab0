"""Every collective of a program with two ranks is seen, with what can be computed by hand."""

import math

import pytest

WIDTH = {"Float": 4, "Double": 8, "Long": 8, "Half": 2, "BFloat16": 2, "Int": 4, "Byte": 1}
NETWORK = 4 * (64 * 128 + 128 + 128 * 32 + 32)  # bytes of the parameters of programs/every_way.py
LAYERS = {4 * (64 * 128 + 128), 4 * (128 * 32 + 32)}
BY_HAND = [
    ("all_reduce", 40, "float32"),
    ("all_reduce", 80, "float64"),
    ("all_reduce", 20, "bfloat16"),
    ("broadcast", 40, "float32"),
    ("reduce", 40, "float32"),
    ("all_gather", 80, "float32"),
    ("all_gather", 80, "float32"),
    ("reduce_scatter", 80, "float32"),
    ("reduce_scatter", 80, "float32"),
    ("gather", 80, "float32"),
    ("scatter", 80, "float32"),
    ("all_to_all", 80, "float32"),
    ("barrier", 0, None),
    ("monitored_barrier", 0, None),
]
DDP = {"ddp": 4, "no_sync": 2, "static_graph": 3}
SECTIONS_WITH_ONE_ALL_REDUCE = ["compiled", "waited_late", "again"]


@pytest.fixture(params=[0, 1], ids=["rank0", "rank1"])
def rank(request, two):
    return two[request.param]


def test_names_bytes_and_dtypes_are_those_computed_by_hand(rank):
    seen = [
        (one.name, one.nbytes, one.dtype if one.nbytes else None) for one in rank.seen("by_hand")
    ]

    assert seen == BY_HAND


def test_every_collective_between_all_ranks_has_an_end(rank):
    assert all(one.ended for one in rank.seen("by_hand"))


def test_the_group_is_named_with_its_ranks_and_backend(rank):
    assert {(one.group, one.ranks, one.backend) for one in rank.seen("by_hand")} == {
        ("0", (0, 1), "gloo")
    }


def test_numbers_within_the_group_have_no_gap(rank):
    numbers = [one.sequence for one in rank.seen() if one.group == "0"]

    assert numbers == list(range(len(numbers)))


@pytest.mark.parametrize("section", DDP)
def test_every_bucket_of_ddp_is_seen(rank, section):
    buckets = [one for one in rank.seen(section) if one.bucket >= 0]

    assert sum(one.nbytes for one in buckets) == NETWORK * DDP[section]
    assert {(one.name, one.dtype) for one in buckets} == {("all_reduce", "float32")}
    assert all(one.ended for one in buckets)


def test_buckets_are_begun_in_backward_and_numbered_from_0(rank):
    buckets = [one for one in rank.seen("no_sync") if one.bucket >= 0]
    count = max(one.bucket for one in buckets) + 1

    assert {one.phase for one in buckets} == {"backward"}
    assert count > 1
    assert [one.bucket for one in buckets] == list(range(count)) * DDP["no_sync"]


def test_what_the_constructor_sends_is_init(rank):
    seen = rank.seen("ddp_made")

    assert seen
    assert {one.phase for one in seen} == {"init"}


def test_a_communication_hook_in_python_sends_half_the_bytes(rank):
    seen = [one for one in rank.seen("fp16_hook") if one.dtype == "float16"]

    assert sum(one.nbytes for one in seen) == NETWORK // 2 * 3
    assert {(one.name, one.phase, one.bucket) for one in seen} == {("all_reduce", "backward", -1)}


def test_unused_parameters_are_sent_too_and_the_map_of_them_is_no_bucket(rank):
    seen = rank.seen("unused")

    assert sum(one.nbytes for one in seen if one.bucket >= 0) == 3 * 4 * 2 * (64 * 8 + 8)
    assert {one.bucket for one in seen if one.dtype == "int32"} == {-1}


def test_fsdp_gathers_each_layer_twice_a_step_and_scatters_it_once(rank):
    seen = rank.seen("fsdp")

    for name, times in (("all_gather", 2), ("reduce_scatter", 1)):
        mine = [one.nbytes for one in seen if one.name == name]
        assert {nbytes: mine.count(nbytes) for nbytes in mine} == dict.fromkeys(LAYERS, 3 * times)
    assert {one.name for one in seen} == {"all_gather", "reduce_scatter"}


def test_fsdp_gathers_in_forward_and_in_backward(rank):
    seen = rank.seen("fsdp")

    assert {one.phase for one in seen if one.name == "all_gather"} == {"forward", "backward"}
    assert {one.phase for one in seen if one.name == "reduce_scatter"} == {"backward"}


def test_a_reduce_scatter_that_the_program_waits_for_has_an_end(rank):
    assert all(one.ended for one in rank.seen("fsdp"))


def test_tensor_parallel_layers_reduce_their_output(rank):
    assert [(one.name, one.nbytes, one.phase) for one in rank.seen("tensor_parallel")] == [
        ("all_reduce", 4 * 4 * 32, "forward")
    ] * 2


def test_functional_collectives_are_seen(rank):
    assert [(one.name, one.nbytes) for one in rank.seen("functional")] == [
        ("all_reduce", 40),
        ("all_gather", 80),
    ]


def test_collectives_in_inference_mode_are_seen(rank):
    assert [(one.name, one.nbytes) for one in rank.seen("inference")] == [("all_reduce", 40)] * 2


@pytest.mark.parametrize("section", SECTIONS_WITH_ONE_ALL_REDUCE)
def test_the_one_collective_is_seen(rank, section):
    assert [(one.name, one.nbytes, one.ended) for one in rank.seen(section)] == [
        ("all_reduce", 40, True)
    ]


def test_objects_are_sent_as_their_lengths_and_bytes(rank):
    seen = rank.seen("objects")

    assert [one.name for one in seen] == ["all_gather", "all_gather", "broadcast", "broadcast"]
    assert (seen[0].nbytes, seen[0].dtype) == (16, "int64")


def test_messages_between_two_are_numbered_by_sender_and_receiver(rank):
    seen = rank.seen("between_two")

    there = [(one.sequence, one.nbytes) for one in seen if one.group == "0 0>1"]
    back = [(one.sequence, one.nbytes) for one in seen if one.group == "0 1>0"]
    assert (there, back) == ([(0, 40), (1, 40), (2, 40)], [(0, 40), (1, 40)])
    assert {one.name for one in seen if one.group == "0 0>1"} == {
        "send" if rank.number == 0 else "recv"
    }


def test_a_message_from_anybody_has_no_number_of_the_group(rank):
    seen = [
        (one.name, one.group, one.sequence, one.nbytes)
        for one in rank.seen("from_anybody")
        if ">" in one.group
    ]

    assert seen == [("recv", "0 any>0", 0, 40) if rank.number == 0 else ("send", "0 1>0", 2, 40)]


def test_messages_that_the_program_waits_for_have_an_end(rank):
    assert all(one.ended for one in rank.seen("between_two"))


def test_a_work_that_is_waited_for_late_ended_when_it_was_complete(rank):
    (one,) = rank.seen("waited_late")

    assert one.wall < 400_000_000  # it was waited for 500 ms after


@pytest.mark.parametrize(("section", "group"), [("first_group", "2"), ("second_group", "3")])
def test_groups_that_come_and_go_have_a_name_of_their_own(rank, section, group):
    seen = rank.seen(section)

    assert [(one.name, one.sequence, one.ranks) for one in seen] == [
        ("all_reduce", 0, (0, 1)),
        ("all_reduce", 1, (0, 1)),
    ]
    assert len({one.group for one in seen}) == 1


def test_a_default_group_made_again_is_another_group(rank):
    (one,) = rank.seen("again")

    assert one.group == "0 (2)"


def test_both_ranks_saw_the_same(two):
    def common(rank):
        return [
            (one.group, one.sequence, one.name, one.nbytes)
            for one in rank.seen()
            if ">" not in one.group
        ]

    assert common(two[0]) == common(two[1])


def test_the_flight_recorder_of_torch_has_the_same_operations_bytes_and_numbers(rank):
    theirs = [
        (entry["profiling_name"], entry["collective_seq_id"], output_bytes(entry))
        for entry in rank.said["flight"]["entries"]
    ]
    ours = [
        (f"gloo:{one.name}", one.sequence + 1, one.nbytes)
        for one in rank.seen(until=rank.said["until"])
    ]
    same = [name for name, _, _ in ours].index(
        "gloo:reduce_scatter"
    )  # which gloo does by one or more all_reduces, each with a number

    assert same > 50
    assert theirs[:same] == ours[:same]


@pytest.mark.parametrize(
    "name", ["all_gather", "broadcast", "barrier", "gather", "scatter", "all_to_all", "reduce"]
)
def test_the_flight_recorder_of_torch_has_as_many(rank, name):
    theirs = [
        entry
        for entry in rank.said["flight"]["entries"]
        if entry["profiling_name"] == f"gloo:{name}"
    ]

    assert len(theirs) == len(
        [one for one in rank.seen(until=rank.said["until"]) if one.name == name]
    )


def output_bytes(entry):
    return sum(
        math.prod(size) * WIDTH[dtype]
        for size, dtype in zip(entry["output_sizes"], entry["output_dtypes"], strict=True)
    )


def test_the_other_clock_was_measured(two):
    clocks = [rank.collectives.clock for rank in two]

    assert clocks[0].bound == 0
    assert 0 < clocks[1].bound < 50_000_000
    assert abs(clocks[1].offset).max() <= clocks[1].bound  # one machine, one clock


def test_both_ranks_are_on_one_host(two):
    assert two[0].collectives.host == two[1].collectives.host != "unknown"


def test_nothing_is_said_to_be_unseen(rank):
    assert rank.collectives.unseen == []
    assert rank.hooks["collectives"]["attached"]
