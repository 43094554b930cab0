"""Traces that no machine without a GPU makes, joined with a run: streams, arrows, what overlaps."""

import tempfile
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from traces.joined.rules import File
from traces.kineto_writer import write_kineto
from traces.strategies import made, traces

from feedline.analysis.report import perfetto_trace
from feedline.analysis.traces.perfetto import _MAX_LANES, NOWHERE, assign_lanes
from feedline.analysis.traces.trace_columns import Kind, Trace, Track
from feedline.analysis.traces.windows import gpu_work, read_windows
from feedline.profiler.events import UNMEASURED, Stage
from feedline.profiler.store.layout import KINETO, SEGMENTS, main_segment
from feedline.profiler.store.manifest import Manifest
from feedline.profiler.store.segment import Segment
from feedline.profiler.store.trainings import open_run

UNIX, BOOT, PID = 1_790_000_000_000_000_000, 4_000_000_000_000, 77
MAIN, STREAM, SIDE = Track("77", "77"), Track("0", "7", 0), Track("0", "20", 0)


def joined(folder: Path, window: Trace, rank: int = 0) -> Path:
    """A run of one forward per rank beside a window."""
    place = folder / f"rank{rank}"
    Manifest(pid=PID, ended=True, anchors=[{"perf_counter_ns": BOOT, "time_ns": UNIX}]).write(place)
    (place / SEGMENTS).mkdir(exist_ok=True)
    segment = Segment(main_segment(place), {"role": "main", "pid": PID})
    segment.add(Stage.FORWARD, BOOT + 1000, 500)
    segment.close()
    write_kineto(window, place / KINETO)
    return folder


def written(folder: Path) -> File:
    run = open_run(folder)
    notes = perfetto_trace.write(run, folder / "trace.json.gz", read_windows(run))
    assert notes == []
    return File(folder / "trace.json.gz")


def event(
    name: str, track: Track, start: int, wall: int, kind: Kind, correlation: int = -1
) -> dict[str, object]:
    return {"name": name, "track": track, "start": start, "wall": wall, "kind": kind, "correlation": correlation, "nbytes": -1,
            "shape": None, "collective": None}  # fmt: skip


def on_a_gpu() -> Trace:
    rows = [
        event("aten::mm", MAIN, 0, 900, Kind.OPERATOR),
        event("cudaLaunchKernel", MAIN, 100, 50, Kind.RUNTIME, 5),
        event("gemm", STREAM, 400, 1000, Kind.KERNEL, 5),
        event("copy", STREAM, 1200, 1000, Kind.KERNEL),
        event("ncclDevKernel_AllReduce", SIDE, 500, 100, Kind.KERNEL),
    ]
    return made(rows, rank=0, world_size=1, origin_ns=UNIX)


def test_streams_have_tracks_of_their_own_after_the_threads_and_before_the_workers(tmp_path):
    file = written(joined(tmp_path, on_a_gpu()))

    assert list(file.names.values()) == [
        "training",
        "training, operators (thread 77)",
        "GPU 0 stream 7",
        "GPU 0 stream 7 (overlapping)",
        "GPU 0 stream 20",
    ]
    assert [tid for _, tid in file.names] == sorted(tid for _, tid in file.names)


def test_a_window_is_shown_where_the_trainings_own_records_are_lost(tmp_path):
    joined(tmp_path, on_a_gpu())
    main_segment(tmp_path / "rank0").write_bytes(b"scribbled")

    assert "gemm" in [event["name"] for event in written(tmp_path).spans]


def test_the_range_that_stopping_the_profiler_closes_is_no_step_of_the_gpu(tmp_path):
    rows = [
        row
        for step, at in ((0, 0), (1, 10_000))
        for row in (
            event(f"ProfilerStep#{step}", MAIN, at, 10_000, Kind.ANNOTATION),
            event("cudaLaunchKernel", MAIN, at + 100, 50, Kind.RUNTIME, step + 5),
            event("gemm", STREAM, at + 400, 1000, Kind.KERNEL, step + 5),
        )
    ]
    rows.append(event("ProfilerStep#2", MAIN, 20_000, 50, Kind.ANNOTATION))
    folder = joined(tmp_path, made(rows, rank=0, world_size=1, origin_ns=UNIX))
    segment = Segment(main_segment(folder / "rank0"), {"role": "main", "pid": PID})
    segment.add(Stage.PROFILED, BOOT, 20_050, extra=2)
    segment.close()
    rank = open_run(folder).ranks[0]

    work = gpu_work(rank, rank.main)

    assert work is not None and (work.steps, work.kernels, work.busy_s) == (2, 1.0, 1e-6)


def test_times_are_those_of_the_run(tmp_path):
    begin = {event["name"]: event["begin"] for event in written(joined(tmp_path, on_a_gpu())).spans}

    assert (begin["forward"], begin["aten::mm"], begin["gemm"]) == (1000, 0, 400)


def test_an_arrow_goes_from_the_launch_to_the_work(tmp_path):
    file = written(joined(tmp_path, on_a_gpu()))
    ends = [
        (event["ph"], file.names[event["pid"], event["tid"]], event["ts"])
        for event in file.events
        if event["ph"] in "sf"
    ]

    assert ends == [("s", "training, operators (thread 77)", 0.1), ("f", "GPU 0 stream 7", 0.4)]


def test_ranks_do_not_share_arrows(tmp_path):
    for rank in range(2):
        joined(tmp_path, on_a_gpu(), rank)
    file = written(tmp_path)

    assert file.broken() == []
    assert len({event["id"] for event in file.events if event["ph"] == "s"}) == 2


@settings(deadline=None, max_examples=50)
@given(window=traces(most=20))
def test_whatever_torch_profiler_wrote_the_file_keeps_the_rules(window):
    window = replace(window, origin_ns=window.origin_ns and UNIX)
    with tempfile.TemporaryDirectory() as folder:
        run = open_run(joined(Path(folder), window))
        found = read_windows(run)
        notes = perfetto_trace.write(run, Path(folder) / "trace.json", found)
        file = File(Path(folder) / "trace.json")

    assert file.broken() == []
    assert (len(file.spans) - 1, notes) == (len(window.events) if window.origin_ns else 0, [])


def test_a_trace_of_another_day_is_not_taken_for_one_of_this_run(tmp_path):
    run = open_run(joined(tmp_path, replace(on_a_gpu(), origin_ns=UNIX - 86_400 * 10**9)))

    assert read_windows(run).by_rank == {}
    assert read_windows(run).notes == [
        "rank 0: kineto.json.gz was not recorded during this run: it is missing from the Perfetto "
        "trace"
    ]


@given(spans=st.lists(st.tuples(st.integers(0, 60), st.integers(0, 20)), max_size=40))
def test_events_of_one_lane_nest_and_lanes_are_as_few_as_first_come_needs(spans):
    start, wall = (
        (
            np.array(column, np.int64)
            for column in zip(*sorted(spans, key=lambda one: (one[0], -one[1])))
        )
        if spans
        else (np.zeros(0, np.int64),) * 2
    )
    found = assign_lanes(start, wall)

    for lane in range(int(found.max(initial=0)) + 1):
        rows = np.flatnonzero(found == lane)
        assert lane == 0 or len(rows)
        for row in rows.tolist():
            before = rows[rows < row]
            assert not (
                (start[before] + wall[before] > start[row])
                & (start[before] + wall[before] < start[row] + wall[row])
            ).any()


def test_what_needs_more_lanes_than_anybody_looks_at_is_left_out():
    count = _MAX_LANES + 3
    found = assign_lanes(np.arange(count), np.full(count, 1000))

    assert found.tolist() == [*range(_MAX_LANES), NOWHERE, NOWHERE, NOWHERE]


def test_events_that_were_left_out_are_said(tmp_path):
    rows = [event("kernel", STREAM, start, 1000, Kind.KERNEL) for start in range(_MAX_LANES + 3)]
    run = open_run(joined(tmp_path, made(rows, rank=0, world_size=1, origin_ns=UNIX)))

    assert perfetto_trace.write(run, tmp_path / "trace.json.gz", read_windows(run)) == [
        "rank 0: 3 events are not in the trace: more overlap than there are tracks"
    ]


def test_a_collective_has_a_track_of_its_own_and_no_time_that_is_none(tmp_path):
    joined(tmp_path, on_a_gpu())
    segment = Segment(main_segment(tmp_path / "rank0"), {"role": "main", "pid": PID})
    allreduce = segment.name_id("allreduce_")
    for start in (0, 50):
        place = segment.add(
            Stage.COLLECTIVE, BOOT + start, UNMEASURED, 3, 3, 4096, start, source=allreduce
        )
        if start == 0:
            segment.end(place, Stage.COLLECTIVE, 100)
    segment.add(Stage.GROUP, 0, 0)
    segment.close()
    file = written(tmp_path)

    assert file.broken() == []
    found = [(e["name"], e["begin"], e["end"], e["args"]) for e in file.on("training, collectives")]
    assert found == [
        ("allreduce_", 0, 100, {"bytes": 4096, "sequence": 0}),
        ("allreduce_", 50, 50, {"bytes": 4096, "sequence": 50, "end": "unknown"}),
    ]


@pytest.mark.parametrize("apart_ns", [0, 10**12])
def test_ranks_of_hosts_that_booted_at_different_times_stand_side_by_side(tmp_path, apart_ns):
    for rank in range(2):
        place = joined(tmp_path, on_a_gpu(), rank) / f"rank{rank}"
        Manifest(
            pid=PID,
            ended=True,
            anchors=[{"perf_counter_ns": BOOT + rank * apart_ns, "time_ns": UNIX}],
        ).write(place)
    file = written(tmp_path)

    assert [event["begin"] for event in file.spans if event["name"] == "aten::mm"] == [0, 0]


def test_nothing_lies_before_0_which_perfetto_would_drop(tmp_path):
    for rank, earlier in enumerate((0, 3_000_000_000)):
        place = joined(tmp_path, on_a_gpu(), rank) / f"rank{rank}"
        Manifest(
            pid=PID,
            ended=True,
            anchors=[{"perf_counter_ns": BOOT + 10**12 * rank, "time_ns": UNIX - earlier}],
        ).write(place)
    file = written(tmp_path)

    assert [event["begin"] for event in file.spans if event["name"] == "aten::mm"] == [
        3_000_000_000,
        3_000_000_000,
    ]
    assert min(event["begin"] for event in file.spans if event["name"] != "forward") >= 0
