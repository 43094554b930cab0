"""What exports of different years and programs do, each in a file of its own."""

import json
import tempfile
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from traces.nsight.made_up import (
    MARK,
    NAMES_A_DOMAIN,
    NAMES_A_THREAD,
    call,
    export,
    gpid,
    gtid,
    kernel,
    pushed,
)

from feedline.analysis.traces.nsight.nsight_reader import read_nsight
from feedline.analysis.traces.trace_columns import CollectiveArgs, Kind, Shape, Trace, Track

KERNELS, COPIES, SETS = (
    "CUPTI_ACTIVITY_KIND_KERNEL",
    "CUPTI_ACTIVITY_KIND_MEMCPY",
    "CUPTI_ACTIVITY_KIND_MEMSET",
)
SYNCS, GRAPHS, CALLS = (
    "CUPTI_ACTIVITY_KIND_SYNCHRONIZATION",
    "CUPTI_ACTIVITY_KIND_GRAPH_TRACE",
    "CUPTI_ACTIVITY_KIND_RUNTIME",
)
NVTX, ENVIRONMENT = "NVTX_EVENTS", "TARGET_INFO_SYSTEM_ENV"


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "made.sqlite"


def told(trace: Trace, kind: Kind) -> list[tuple[int, int, str]]:
    chosen = trace.events[trace.events["kind"] == kind]
    return [(int(row["start"]), int(row["wall"]), trace.names[row["name"]]) for row in chosen]


def test_kernels_alone_are_enough(file):
    (trace,) = read_nsight(export(file, {KERNELS: [kernel(100, 250)]}, {1: "gemm"}))

    assert told(trace, Kind.KERNEL) == [(100, 150, "gemm")]
    assert trace.tracks == [Track("10", "7", 0)]
    assert (trace.rank, trace.world_size, trace.origin_ns, trace.devices) == (None, None, 0, {})
    assert "no CUDA API calls" in trace.notes[0]


def test_an_old_schema_without_processes_contexts_and_demangled_names_is_read(file):
    columns = {
        KERNELS: "start end deviceId streamId shortName",
        COPIES: "start end deviceId streamId bytes copyKind",
    }
    tables = {
        KERNELS: [kernel(100, 250)],
        COPIES: [
            {"start": 300, "end": 340, "deviceId": 0, "streamId": 7, "bytes": 8, "copyKind": 2}
        ],
    }

    (trace,) = read_nsight(export(file, tables, {1: "gemm"}, columns))

    assert told(trace, Kind.KERNEL) == [(100, 150, "gemm")]
    assert told(trace, Kind.COPY) == [(300, 40, "Memcpy DtoH (Unknown -> Unknown)")]


def test_copies_and_sets_have_the_names_that_kineto_gives_them(file):
    place = {"start": 1, "end": 2, "deviceId": 0, "streamId": 7, "globalPid": gpid(10)}
    copies = [
        {**place, "bytes": 64, "copyKind": 1, "srcKind": kind, "dstKind": 2} for kind in (0, 1)
    ]
    (trace,) = read_nsight(
        export(file, {COPIES: copies, SETS: [{**place, "bytes": 4, "memKind": 2}]})
    )

    assert sorted(told(trace, Kind.COPY)) == [
        (1, 1, "Memcpy HtoD (Pageable -> Device)"),
        (1, 1, "Memcpy HtoD (Pinned -> Device)"),
    ]
    assert told(trace, Kind.SET) == [(1, 1, "Memset (Device)")]
    assert trace.events["nbytes"].tolist() == [64, 64, 4] or sorted(
        trace.events["nbytes"].tolist()
    ) == [4, 64, 64]


def test_a_process_with_two_devices_is_two_traces_with_the_same_host_threads(file):
    tables = {
        KERNELS: [kernel(0, 100, device=0), kernel(0, 90, device=1)],
        CALLS: [call(0, 5, 3, 2)],
    }
    first, second = read_nsight(export(file, tables, {1: "gemm", 2: "cudaLaunchKernel_v7000"}))

    assert [told(trace, Kind.KERNEL) for trace in (first, second)] == [
        [(0, 100, "gemm")],
        [(0, 90, "gemm")],
    ]
    assert told(first, Kind.RUNTIME) == told(second, Kind.RUNTIME) == [(0, 5, "cudaLaunchKernel")]
    assert (first.rank, second.rank) == (0, 1)
    assert any("drives several devices" in note for note in first.notes)


def test_a_device_that_a_process_only_touched_is_no_rank_of_its_own(file):
    (trace,) = read_nsight(
        export(file, {KERNELS: [kernel(0, 100_000, device=3), kernel(5, 6, device=0)]}, {1: "gemm"})
    )
    assert {track.device for track in trace.tracks} == {0, 3}


def test_processes_that_use_one_device_are_traces_of_their_own(file):
    first, second = read_nsight(
        export(file, {KERNELS: [kernel(0, 10, pid=12), kernel(2, 8, pid=11)]}, {1: "gemm"})
    )
    assert [trace.tracks[0].process for trace in (first, second)] == ["11", "12"]


def test_a_synchronization_lies_on_the_device_of_its_context_whatever_number_it_has(file):
    wait = {
        "start": 20,
        "end": 50,
        "deviceId": 0,
        "contextId": 2,
        "streamId": 7,
        "globalPid": gpid(10),
        "syncType": 3,
    }
    (trace,) = read_nsight(
        export(file, {KERNELS: [kernel(0, 10, device=1)], SYNCS: [wait]}, {1: "gemm"})
    )

    assert told(trace, Kind.SYNC) == [(20, 30, "Stream Sync")]
    assert {track.device for track in trace.tracks} == {1}


def test_graphs_recorded_as_a_whole_keep_the_device_busy_and_are_said(file):
    graph = {**kernel(100, 400), "graphId": 1}
    (trace,) = read_nsight(export(file, {GRAPHS: [graph], CALLS: []}))

    assert told(trace, Kind.KERNEL) == [(100, 300, "CUDA graph")]
    assert "--cuda-graph-trace=node" in trace.notes[0]


def test_ranges_have_their_domain_before_their_name_and_texts_by_number(file):
    named = {
        "start": 0,
        "eventType": NAMES_A_DOMAIN,
        "text": "feedline",
        "globalTid": gtid(10, 10),
        "domainId": 4,
    }
    tables = {
        KERNELS: [kernel(0, 10)],
        NVTX: [
            named,
            pushed(5, 9, None, textId=8, domainId=4, int64Value=4096),
            pushed(6, 7, "mine"),
            pushed(1, 3, "x", domainId=9),
        ],
    }
    (trace,) = read_nsight(export(file, tables, {1: "gemm", 8: "copy"}))

    assert told(trace, Kind.ANNOTATION) == [
        (1, 2, "domain 9:x"),
        (5, 4, "feedline:copy"),
        (6, 1, "mine"),
    ]
    annotations = trace.events[trace.events["kind"] == Kind.ANNOTATION]
    assert annotations["nbytes"].tolist() == [
        -1,
        4096,
        -1,
    ]  # feedline's payload is bytes; of others nobody knows what it is


def test_ranges_of_loader_workers_come_with_the_only_process_that_has_a_device(file):
    tables = {KERNELS: [kernel(0, 10)], NVTX: [pushed(2, 5, "decode", pid=99, tid=99)]}
    (trace,) = read_nsight(export(file, tables, {1: "gemm"}))
    assert told(trace, Kind.ANNOTATION) == [(2, 3, "decode")]


def test_marks_have_no_length_and_ranges_that_were_open_end_with_the_recording(file):
    mark = {**pushed(7, None, "here"), "eventType": MARK}
    (trace,) = read_nsight(
        export(
            file, {KERNELS: [kernel(0, 100)], NVTX: [mark, pushed(40, None, "open")]}, {1: "gemm"}
        )
    )
    assert told(trace, Kind.ANNOTATION) == [(7, 0, "here"), (40, 60, "open")]


def test_shapes_of_emit_nvtx_are_read(file):
    text = (
        "aten::addmm, seq = 4, op_id = 12, sizes = [[10], [32, 64], [64, 10], [], []], "
        "input_op_ids = [(3,0)]"
    )
    (trace,) = read_nsight(
        export(file, {KERNELS: [kernel(0, 10)], NVTX: [pushed(1, 5, text)]}, {1: "gemm"})
    )

    assert told(trace, Kind.OPERATOR) == [(1, 4, "aten::addmm")]
    (shape,) = trace.events["shape"][trace.events["kind"] == Kind.OPERATOR].tolist()
    assert trace.shapes[shape] == Shape(((10,), (32, 64), (64, 10), (), ()), ("",) * 5)


@pytest.mark.parametrize("sizes", ["[[1, 2", "7", "[" * 9_000 + "]" * 9_000, '[["a"]]'])
def test_sizes_that_are_no_sizes_are_left_out(file, sizes):
    (trace,) = read_nsight(
        export(
            file,
            {KERNELS: [kernel(0, 10)], NVTX: [pushed(1, 5, f"aten::mm, seq = 4, sizes = {sizes}")]},
            {1: "g"},
        )
    )
    assert told(trace, Kind.OPERATOR) == [(1, 4, "aten::mm")]


def test_user_ranges_under_emit_nvtx_are_annotations(file):
    texts = [
        "ProfilerStep#3, op_id = 1",
        "enumerate(DataLoader)#_Iter.__next__, op_id = 2",
        "forward, op_id = 3",
        "Optimizer.step#SGD.step",
    ]
    (trace,) = read_nsight(
        export(
            file,
            {KERNELS: [kernel(0, 10)], NVTX: [pushed(1, 5, text) for text in texts]},
            {1: "gemm"},
        )
    )

    names = {name for _, _, name in told(trace, Kind.ANNOTATION)}
    assert names == {
        "ProfilerStep#3",
        "enumerate(DataLoader)#_Iter.__next__",
        "forward",
        "Optimizer.step#SGD.step",
    }


def test_threads_run_from_each_time_they_got_a_cpu_until_they_lost_it(file):
    looks = [(10, 1), (25, 0), (40, 1), (40, 1), (70, 0), (90, 1)]
    rows = [
        {"start": start, "cpu": 0, "isSchedIn": given, "globalTid": gtid(10, 10)}
        for start, given in looks
    ]
    system = [{"start": 26, "end": 39, "globalTid": gtid(10, 10), "nameId": 2}]
    (trace,) = read_nsight(
        export(
            file,
            {KERNELS: [kernel(0, 10)], "SCHED_EVENTS": rows, "OSRT_API": system},
            {1: "gemm", 2: "poll"},
        )
    )
    assert told(trace, Kind.SYSTEM) == [(10, 15, "running"), (26, 13, "poll"), (40, 30, "running")]


def test_times_that_an_export_normalized_count_from_the_first(file):
    tables = {KERNELS: [kernel(1_779_782_330_000_000_100, 1_779_782_330_000_000_250)],
              "META_DATA_EXPORT": [{"name": "EXPORT_PARAM_TIME_NORMALIZE", "value": "true"}],
              "TARGET_INFO_SESSION_START_TIME": [{"utcEpochNs": 1_779_782_330_000_000_000}]}  # fmt: skip
    (trace,) = read_nsight(export(file, tables, {1: "gemm"}))
    assert (trace.origin_ns, told(trace, Kind.KERNEL)) == (
        1_779_782_330_000_000_100,
        [(0, 150, "gemm")],
    )


def test_an_end_before_its_start_is_no_time(file):
    (trace,) = read_nsight(
        export(file, {KERNELS: [kernel(100, 40), kernel(-(2**63), 2**63 - 1)]}, {1: "gemm"})
    )
    assert (trace.events["wall"] >= 0).all()


class TestRanks:
    def test_an_mpi_thread_name_says_it(self, file):
        name = {
            "start": 0,
            "eventType": NAMES_A_THREAD,
            "text": "MPI Rank 3",
            "globalTid": gtid(10, 10),
            "domainId": 0,
        }
        tables = {KERNELS: [kernel(0, 10), kernel(0, 10, pid=11, device=1)], NVTX: [name]}
        first, second = read_nsight(export(file, tables, {1: "gemm"}))
        assert (first.rank, second.rank) == (3, None)

    @pytest.mark.parametrize(
        "text",
        [
            "A=1;RANK=2;WORLD_SIZE=4;B=x",
            "A=1\0RANK=2\0WORLD_SIZE=4\0",
            "OMPI_COMM_WORLD_RANK=2\nOMPI_COMM_WORLD_SIZE=4",
        ],
    )
    def test_the_launchers_variables_say_it_where_one_process_used_a_device(self, file, text):
        (trace,) = read_nsight(
            export(
                file,
                {
                    KERNELS: [kernel(0, 10)],
                    ENVIRONMENT: [{"name": "DeviceEnvironment", "value": text}],
                },
                {1: "g"},
            )
        )
        assert (trace.rank, trace.world_size) == (2, 4)

    def test_newer_exports_have_one_row_for_each_variable(self, file):
        rows = [
            {"name": "PROCESS_0:ENVIRONMENT_VARIABLE", "value": text}
            for text in ('RANK="5"', 'WORLD_SIZE="8"')
        ]
        (trace,) = read_nsight(
            export(file, {KERNELS: [kernel(0, 10)], "META_DATA_CAPTURE": rows}, {1: "gemm"})
        )
        assert (trace.rank, trace.world_size) == (5, 8)

    def test_of_several_processes_the_variables_say_nothing_and_devices_number_them(self, file):
        tables = {
            KERNELS: [kernel(0, 10), kernel(0, 10, pid=11, device=1)],
            ENVIRONMENT: [{"name": "DeviceEnvironment", "value": "RANK=2"}],
        }
        assert [trace.rank for trace in read_nsight(export(file, tables, {1: "gemm"}))] == [0, 1]

    @pytest.mark.parametrize(
        "said", [["--nnodes=2", "--node_rank=1"], ["--node-rank", "1", "train.py"]]
    )
    def test_on_the_second_machine_they_go_on_from_those_of_the_first(self, file, said):
        rows = [
            {"name": f"PROCESS_0:ARGUMENT_{number}", "value": value}
            for number, value in enumerate(said)
        ]
        tables = {
            KERNELS: [kernel(0, 10), kernel(0, 10, pid=11, device=1)],
            "META_DATA_CAPTURE": rows,
        }
        assert [trace.rank for trace in read_nsight(export(file, tables, {1: "gemm"}))] == [2, 3]

    def test_a_single_process_of_which_nothing_is_said_has_none(self, file):
        assert [
            trace.rank
            for trace in read_nsight(export(file, {KERNELS: [kernel(0, 10)]}, {1: "gemm"}))
        ] == [None]


class TestNccl:
    STRINGS = {
        1: "ncclDevKernel_SendRecv(ncclDevKernelArgsStorage<4096ul>)",
        2: "cudaLaunchKernelExC_v11060",
        3: "ncclDevKernel_AllReduce_Sum_f32",
    }

    def ranges(self) -> list[dict[str, object]]:
        named = {
            "start": 0,
            "eventType": NAMES_A_DOMAIN,
            "text": "NCCL",
            "globalTid": gtid(10, 10),
            "domainId": 1,
        }
        begun = {"NCCL communicator ID": 77, "No. of ranks": 8, "Rank": 6, "CUDA device": 0}
        small = {"NCCL communicator ID": 78, "No. of ranks": 2, "Rank": 0, "CUDA device": 0}

        def said(start: int, end: int, name: str, payload: object = None) -> dict[str, object]:
            return pushed(
                start, end, name, domainId=1, jsonText=json.dumps(payload) if payload else None
            )

        return [
            named,
            said(1, 2, "ncclCommInitRank", begun),
            said(3, 4, "ncclCommInitRankConfig", small),
            said(
                100,
                150,
                "ncclAllReduce",
                {
                    "NCCL communicator ID": 77,
                    "Message size [bytes]": 4096,
                    "Reduction operation": "Sum",
                },
            ),
            said(200, 201, "ncclGroupStart"),
            said(
                202,
                203,
                "ncclSend",
                {"NCCL communicator ID": 78, "Message size [bytes]": 100, "Peer rank": 1},
            ),
            said(
                204,
                205,
                "ncclRecv",
                {"NCCL communicator ID": 78, "Message size [bytes]": 30, "Peer rank": 1},
            ),
            said(
                206,
                207,
                "ncclSend",
                {"NCCL communicator ID": 78, "Message size [bytes]": 5, "Peer rank": 0},
            ),
            said(208, 260, "ncclGroupEnd"),
        ]

    def test_a_payload_says_operation_bytes_group_and_rank(self, file):
        tables = {
            KERNELS: [kernel(160, 400, correlation=21, name=3), kernel(400, 500, correlation=22)],
            CALLS: [call(120, 130, 21, 2), call(220, 230, 22, 2)],
            NVTX: self.ranges(),
        }
        (trace,) = read_nsight(export(file, tables, self.STRINGS))

        found = [
            trace.collectives[row]
            for row in trace.events["collective"][trace.events["kind"] == Kind.KERNEL].tolist()
        ]
        assert found == [
            CollectiveArgs(
                "allreduce", "77", size=8, elements_in=4096, elements_out=4096, dtype="Byte"
            ),
            CollectiveArgs(
                "send_recv", "78", size=2, elements_in=105, elements_out=30, dtype="Byte"
            ),
        ]
        assert (trace.rank, trace.world_size) == (6, 8)

    def test_a_kernel_whose_launch_is_not_there_is_known_by_its_name_only(self, file):
        (trace,) = read_nsight(
            export(
                file,
                {KERNELS: [kernel(160, 400, correlation=21)], CALLS: [], NVTX: self.ranges()},
                self.STRINGS,
            )
        )
        assert trace.events["collective"].tolist() == [-1] * len(trace.events)


def test_no_device_at_all_gives_the_processes_with_ranges(file):
    (trace,) = read_nsight(export(file, {NVTX: [pushed(1, 5, "epoch")]}))
    assert told(trace, Kind.ANNOTATION) == [(1, 4, "epoch")]
    assert not np.isin(trace.events["kind"], (Kind.KERNEL, Kind.COPY)).any()


@given(st.randoms(use_true_random=False))
@settings(max_examples=25, deadline=None)
def test_the_order_of_rows_in_the_file_does_not_matter(random):
    tables = {
        KERNELS: [
            kernel(start, start + 10, device=start % 2, correlation=start, name=1 + start % 3)
            for start in range(40, 60)
        ],
        CALLS: [call(start - 20, start - 18, start, 4 + start % 2) for start in range(40, 60)],
        NVTX: [
            pushed(start, start + 9, f"aten::op{start % 4}, seq = {start}, sizes = [[{start % 5}]]")
            for start in range(20, 50)
        ],
    }
    strings = {
        1: "gemm",
        2: "conv",
        3: "ncclDevKernel_AllReduce",
        4: "cudaLaunchKernel",
        5: "cudaLaunchKernelExC",
    }
    with tempfile.TemporaryDirectory() as folder:
        straight = read_nsight(export(Path(folder, "a.sqlite"), tables, strings))
        mixed = {table: random.sample(rows, len(rows)) for table, rows in tables.items()}
        shuffled = read_nsight(export(Path(folder, "a2.sqlite"), mixed, strings))
    for one, other in zip(straight, shuffled, strict=True):
        assert (one.events == other.events).all()
        assert (one.names, one.tracks, one.shapes, one.collectives) == (
            other.names,
            other.tracks,
            other.shapes,
            other.collectives,
        )
