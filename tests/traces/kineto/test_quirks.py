"""What files of other years, tools and devices do."""

import json

import pytest
from traces.kineto.making import TS, event, kernel, read, rows, text

from feedline.analysis.traces.trace_columns import CollectiveArgs, Kind, Shape, Track

NS = TS * 1000


def test_nanoseconds_of_today_survive_although_a_double_cannot_hold_them(tmp_path):
    listed = text(
        '{"ph": "X", "name": "a", "pid": 1, "tid": 1, "ts": 1712195495519689.047, "dur": 63.813}'
    )
    assert rows(read(tmp_path, listed)) == [("a", 1712195495519689047, 63813)]


@pytest.mark.parametrize(
    ("written", "ns"),
    [
        ("1712195495519689", 1712195495519689000),
        ("1712195495519689.5", 1712195495519689500),
        ("1712195495519689.04", 1712195495519689040),
        ("1.712195495519689047e15", 1712195495519689047),
        ('"1712195495519689.047"', 1712195495519689047),
        ("4458676522690.655", 4458676522690655),
        ("8796093022207.999", 8796093022207999),
        ("0.001", 1),
        ("-0.001", -1),
        ("-12.5", -12500),
    ],
)
def test_times_are_exact_in_every_form(tmp_path, written, ns):
    listed = text(f'{{"ph": "X", "name": "a", "pid": 1, "tid": 1, "ts": {written}, "dur": 1}}')
    assert rows(read(tmp_path, listed)) == [("a", ns, 1000)]


def test_forms_may_be_mixed(tmp_path):
    written = [
        "1712195495519689",
        "1712195495519689.5",
        "1712195495519690.047",
        "1.7121954955196910e15",
    ]
    listed = text(
        *(
            f'{{"ph": "X", "name": "a", "pid": 1, "tid": 1, "ts": {ts}, "dur": 0.25}}'
            for ts in written
        )
    )
    starts = [start for _, start, _ in rows(read(tmp_path, listed))]
    assert starts == [
        1712195495519689000,
        1712195495519689500,
        1712195495519690047,
        1712195495519691000,
    ]


@pytest.mark.parametrize("behind", [True, False])
def test_the_base_time_counts_wherever_it_stands(tmp_path, behind):
    around = '"baseTimeNanoseconds": 1700000000000000007'
    listed = json.dumps([event(ts=1.5)])
    whole = (
        f'{{"traceEvents": {listed}, {around}}}'
        if behind
        else f'{{{around}, "traceEvents": {listed}}}'
    )
    trace = read(tmp_path, whole)
    assert rows(trace) == [("aten::mm", 1700000000000001507, 5000)]
    assert trace.events["start"][0] == 0


def test_times_from_an_unknown_zero_stay_as_they_are(tmp_path):
    trace = read(tmp_path, text(event(ts=7), event(ts=1000.5)))
    assert (trace.origin_ns, trace.events["start"].tolist()) == (0, [7000, 1_000_500])


def test_a_bare_list_is_a_trace(tmp_path):
    assert rows(read(tmp_path, "\n" + json.dumps([event("a"), event("b", TS + 1)]))) == [
        ("a", NS, 5000),
        ("b", NS + 1000, 5000),
    ]


def test_a_byte_order_mark_is_passed_over(tmp_path):
    assert len(read(tmp_path, b"\xef\xbb\xbf" + text(event()).encode()).events) == 1


def test_objects_before_and_behind_the_events_may_hold_anything(tmp_path):
    around = {
        "metadata": {
            "traceEvents": [1, {"ph": "X", "name": "no"}],
            "nested": [[{"name": "no"}, {"name": "no"}]],
        }
    }
    before = text(event(), **around)
    behind = (
        '{"traceEvents": ['
        + json.dumps(event())
        + "], "
        + json.dumps({"deviceProperties": [{"name": "A", "id": 0}, {"name": "B", "id": 1}]})[1:]
    )
    assert rows(read(tmp_path, before)) == [("aten::mm", NS, 5000)]
    trace = read(tmp_path, behind)
    assert (rows(trace), trace.devices) == ([("aten::mm", NS, 5000)], {0: "A", 1: "B"})


def test_objects_among_the_arguments_do_not_split_an_event(tmp_path):
    odd = event("odd", args={"list": [{"name": "x"}, {"name": "y"}], "deep": {"ph": "X"}})
    for piece in (7, 64, 1 << 19):
        assert len(read(tmp_path, text(odd, event(), odd), piece=piece).events) == 3


@pytest.mark.parametrize(
    "keys", ["args cat dur name ph pid tid ts", "tid ts ph dur pid name args cat"]
)
def test_keys_may_stand_in_any_order(tmp_path, keys):
    listed = [
        {key: entry[key] for key in keys.split()}
        for entry in (kernel(ts=TS + n) for n in range(50))
    ]
    assert len(read(tmp_path, text(*listed), piece=100).events) == 50


def test_processes_and_threads_are_numbers_or_text(tmp_path):
    listed = [
        event(pid=5, tid="6"),
        event(pid="5", tid=6),
        event(pid="Spans", tid="PyTorch Profiler"),
        event(pid=None, tid=1.5),
    ]
    tracks = read(tmp_path, text(*listed)).tracks
    assert {(track.process, track.thread, track.device) for track in tracks} == {
        ("5", "6", -1),
        ("Spans", "PyTorch Profiler", -1),
        ("", "1.5", -1),
    }


@pytest.mark.parametrize("stream", [7, "7", 7.0, None, [], {}])
def test_a_stream_need_not_be_a_number(tmp_path, stream):
    (track,) = read(tmp_path, text(kernel(stream=stream))).tracks
    assert (track.device, track.thread) == (0, "7")


def test_a_stream_of_2021_is_a_name(tmp_path):
    old = event(
        "k", cat="Kernel", pid=3, tid="stream 7", args={"device": 3, "stream": 7, "correlation": 1}
    )
    label = {
        "name": "thread_name",
        "ph": "M",
        "pid": 3,
        "tid": "stream 7",
        "ts": 0,
        "args": {"name": "compute"},
    }
    assert read(tmp_path, text(old, label)).tracks == [Track("3", "7", 3, "compute")]


def test_categories_of_all_years_have_a_kind(tmp_path):
    kinds = {
        "Operator": Kind.OPERATOR, "Kernel": Kind.KERNEL, "Memcpy": Kind.COPY, "Memset": Kind.SET, "Runtime": Kind.RUNTIME,
        "cuda_driver": Kind.RUNTIME, "hip_runtime": Kind.RUNTIME, "gpu_user_annotation": Kind.DEVICE_ANNOTATION, "cuda_sync": Kind.SYNC,
        "python_function": Kind.PYTHON, "overhead": Kind.OVERHEAD, "Trace": Kind.OTHER, "of 2031": Kind.OTHER,
    }  # fmt: skip
    trace = read(tmp_path, text(*(event(category, cat=category) for category in kinds)))
    assert {trace.names[row["name"]]: row["kind"] for row in trace.events} == kinds


def test_a_host_that_waits_is_on_its_thread_and_a_stream_that_waits_on_its_own(tmp_path):
    waits = [
        event("Context Sync", cat="cuda_sync", args={"device": 0, "stream": stream})
        for stream in (-1, 4294967295)
    ]
    trace = read(
        tmp_path,
        text(
            *waits,
            event(
                "Stream Wait Event",
                TS + 9,
                cat="cuda_sync",
                pid=0,
                tid=20,
                args={"device": 0, "stream": 20},
            ),
        ),
    )
    assert [trace.tracks[track].device for track in trace.events["track"]] == [-1, -1, 0]


def test_rows_at_zero_are_dropped_and_counted(tmp_path):
    trace = read(tmp_path, text(event(ts=0), event("b"), event(ts=0.0)))
    assert rows(trace) == [("b", NS, 5000)]
    assert trace.notes == ["2 events were left out: at time 0"]


def test_rows_of_another_clock_are_dropped_and_counted(tmp_path):
    booted = 3 * 86_400 * 10**6  # us since boot
    trace = read(tmp_path, text(event("a"), event(ts=booted), event("b", ts=TS + 9)))

    assert rows(trace) == [("a", NS, 5000), ("b", NS + 9000, 5000)]
    assert trace.notes == ["1 event was left out: on another clock"]


def test_a_clock_that_begins_at_zero_loses_nothing(tmp_path):
    assert len(read(tmp_path, text(event(ts=0), event(ts=10))).events) == 2


def test_a_length_that_is_missing_or_negative_is_nothing_and_counted(tmp_path):
    without = event("none")
    del without["dur"]
    trace = read(tmp_path, text(event("a", dur=-3), event("b", dur=None), without))
    assert [wall for _, _, wall in rows(trace)] == [0, 0, 0]
    assert trace.notes == [
        "2 events were counted as 0 ns long: the duration is missing or negative"
    ]


def test_begins_and_ends_are_joined_even_apart_and_out_of_order(tmp_path):
    def mark(phase, name, ts):
        return {"ph": phase, "cat": "user_annotation", "name": name, "pid": 1, "tid": 1, "ts": ts}

    marks = [
        mark("E", "", TS + 9),
        mark("B", "outer", TS),
        mark("E", "", TS + 4),
        event("x"),
        mark("B", "inner", TS + 2),
        mark("B", "open", TS + 20),
    ]
    trace = read(tmp_path, text(*marks), piece=50)
    assert rows(trace) == [("outer", NS, 9000), ("x", NS, 5000), ("inner", NS + 2000, 2000)]
    assert trace.notes == ["1 event was left out: the begin or the end is missing"]


def test_flows_counters_and_instants_are_no_events(tmp_path):
    others = [
        {"ph": phase, "name": "n", "pid": 1, "tid": 1, "ts": TS, "id": 1}
        for phase in "sftiICbenNODPRcMVv(),"
    ]
    assert (
        len(read(tmp_path, text(event(), *others, {"name": "no phase"}, {"ph": "?"})).events) == 1
    )


def test_shapes_are_held_once_and_lists_of_tensors_are_opened(tmp_path):
    args = {
        "Input Dims": [[2, 3], [], [[4], [5, 6]]],
        "Input type": ["float", "Scalar", "TensorList"],
    }
    old = {"Input dims": [[8]], "Input type": []}
    trace = read(
        tmp_path,
        text(
            event("a", args=args),
            event("b", TS + 1, args=args),
            event("c", TS + 2, args=old),
            event("d", TS + 3),
        ),
    )
    assert trace.events["shape"].tolist() == [0, 0, 1, -1]
    opened = Shape(((2, 3), (), (4,), (5, 6)), ("float", "Scalar", "TensorList", "TensorList"))
    assert trace.shapes == [opened, Shape(((8,),), ())]


def test_ranks_that_a_collective_leaves_out_are_counted_on(tmp_path):
    said = {
        "Collective name": "allreduce",
        "Process Group Ranks": "[0, 2, ..., 126]",
        "Group size": 64,
        "Seq": 5,
    }
    trace = read(
        tmp_path,
        text(
            kernel(**said),
            kernel("n", TS + 1, **said, **{"Global rank start": 0, "Global rank stride": 2}),
        ),
    )
    expected = CollectiveArgs("allreduce", size=64, sequence=5)
    assert [trace.collectives[number].ranks for number in trace.events["collective"]] == [
        None,
        tuple(range(0, 128, 2)),
    ]
    assert expected in trace.collectives


@pytest.mark.parametrize("as_text", [True, False])
def test_rank_and_groups_come_from_distributed_info(tmp_path, as_text):
    groups = [
        {"pg_name": "0", "pg_size": 4, "ranks": []},
        {"pg_name": "tp", "pg_size": 2, "ranks": [1, 3]},
    ]
    info = {"backend": "nccl", "rank": 3, "world_size": 4, "pg_config": groups}
    trace = read(tmp_path, text(event(), distributedInfo=json.dumps(info) if as_text else info))
    assert (trace.rank, trace.world_size, trace.groups) == (3, 4, {"0": (0, 1, 2, 3), "tp": (1, 3)})


def test_arguments_of_any_type_cost_no_event(tmp_path):
    odd = [
        event(args=args)
        for args in (
            None,
            [],
            "text",
            {"correlation": "12"},
            {"bytes": None},
            {"correlation": 1 << 70},
        )
    ]
    trace = read(tmp_path, text(*odd, event("b") | {"name": 7}))
    assert len(trace.events) == 7
    assert sorted(trace.events["correlation"].tolist()) == [-1] * 6 + [12]
