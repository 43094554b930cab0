"""Real exports: what the columns hold, against SQL written by hand."""

import numpy as np
import pytest
from traces.nsight.real import Asked, file

from feedline.analysis.traces.nsight.nsight_reader import read_nsight
from feedline.analysis.traces.trace_budget import device_work, gpu_figures
from feedline.analysis.traces.trace_columns import DEVICE_WORK, Kind, Trace
from feedline.analysis.traces.trace_steps import TraceWindow

H100, SAXPY = "h100_2gpu_sendrecv.sqlite", "saxpy_mpi_2022_non_utf8.sqlite"
DRIVEN = [(H100, 0, 144, 0), (H100, 1, 145, 1), (SAXPY, 0, 1230493, 0)]


def union(events: np.ndarray) -> list[tuple[int, int]]:
    found: list[tuple[int, int]] = []
    for start, wall in zip(events["start"].tolist(), events["wall"].tolist()):
        if found and start <= found[-1][1]:
            found[-1] = (found[-1][0], max(found[-1][1], start + wall))
        else:
            found.append((start, start + wall))
    return found


def length(events: np.ndarray) -> int:
    return sum(end - start for start, end in union(events))


def kernels(trace: Trace, communication: bool) -> np.ndarray:
    nccl = np.array([name.startswith("nccl") for name in trace.names])
    return trace.events[
        (trace.events["kind"] == Kind.KERNEL) & (nccl[trace.events["name"]] == communication)
    ]


@pytest.mark.parametrize(("name", "number", "process", "device"), DRIVEN)
def test_the_report_s_figures_of_a_device_are_those_of_sql(name, number, process, device):
    asked, work = Asked(file(name), process, device), device_work(read_nsight(file(name))[number])
    figures = gpu_figures(work, TraceWindow(int(work.busy[0, 0]), int(work.busy[-1, 1]), 1))

    assert figures.span_ns == asked.span
    assert figures.busy_ns == asked.busy
    assert figures.compute_ns == asked.compute
    assert (figures.communication_ns, figures.hidden_ns) == (asked.communication, asked.overlap)


@pytest.mark.parametrize(("name", "number", "process", "device"), DRIVEN)
def test_busy_communication_and_overlap_are_those_of_sql_to_the_nanosecond(
    name, number, process, device
):
    asked, trace = Asked(file(name), process, device), read_nsight(file(name))[number]

    work = trace.events[np.isin(trace.events["kind"], DEVICE_WORK)]
    moved, computed = kernels(trace, True), kernels(trace, False)
    both = np.sort(np.concatenate([moved, computed]), order="start")

    assert length(work) == asked.busy > 0
    assert length(moved) == asked.communication
    assert length(computed) == asked.compute
    assert length(moved) + length(computed) - length(both) == asked.overlap
    assert int((work["start"] + work["wall"]).max() - work["start"].min()) == asked.span
    assert int(work["nbytes"][work["kind"] == Kind.COPY].sum()) == asked.copied_bytes
    assert int((work["kind"] == Kind.KERNEL).sum()) == asked.kernels


def test_two_processes_with_a_device_each_are_two_traces_in_the_order_of_their_devices():
    first, second = read_nsight(file(H100))

    assert [
        {track.device for track in trace.tracks if track.device >= 0} for trace in (first, second)
    ] == [{0}, {1}]
    assert [{track.process for track in trace.tracks} for trace in (first, second)] == [
        {"144"},
        {"145"},
    ]
    assert (first.rank, second.rank) == (0, 1)
    assert (
        "numbered from 0, in device order" in first.notes[-1]
    )  # under one torchrun, nothing in the file says which is which


def test_operators_of_emit_nvtx_are_operators_without_their_numbers():
    trace = read_nsight(file(H100))[0]
    operators = {
        trace.names[name]
        for name in trace.events["name"][trace.events["kind"] == Kind.OPERATOR].tolist()
    }

    assert {
        "aten::linear",
        "aten::copy_",
        "flash_attn::_flash_attn_forward",
        "c10d::alltoall_base_",
    } <= operators
    assert not any(", " in name or name.startswith("FSDP::") for name in operators)


def test_send_and_receive_kernels_are_known_as_the_all_to_all_that_pytorch_launched_them_for():
    for trace in read_nsight(file(H100)):
        moved = kernels(trace, True)
        known = moved["collective"][moved["collective"] >= 0]
        assert len(moved) - len(known) <= 2  # their launch lies before the window that was cut out
        assert {trace.collectives[one].operation for one in known.tolist()} == {"all_to_all"}


def test_every_kernel_inside_the_window_is_joined_with_the_call_that_launched_it():
    trace = read_nsight(file(H100))[0]
    launched = trace.events["correlation"][trace.events["kind"] == Kind.RUNTIME]
    assert (
        np.isin(trace.events["correlation"][trace.events["kind"] == Kind.KERNEL], launched).mean()
        > 0.95
    )


def test_the_export_whose_environment_is_not_utf_8_opens_and_says_its_rank():
    (trace,) = read_nsight(file(SAXPY))

    assert (trace.rank, trace.world_size) == (0, 2)
    assert trace.devices == {0: "NVIDIA A100-SXM4-40GB"}
    assert trace.origin_ns == 1687813257637297504
    assert {track.name for track in trace.tracks} >= {"MPI Rank 0"}
    assert {"MPI:MPI_Send", "saxpy", "cudaMemcpy", "Memcpy HtoD (Pageable -> Device)"} <= set(
        trace.names
    )


def test_calls_that_were_recorded_a_second_time_with_their_stack_count_once():
    (trace,) = read_nsight(file(SAXPY))
    launches = trace.events[
        (trace.events["kind"] == Kind.RUNTIME)
        & (np.array(trace.names)[trace.events["name"]] == "cudaLaunchKernel")
    ]
    assert len(launches) == 5  # as many as kernels


@pytest.mark.parametrize("name", [H100, SAXPY])
def test_events_are_in_order_and_refer_to_what_is_there(name):
    for trace in read_nsight(file(name)):
        events = trace.events
        assert (
            np.lexsort((events["name"], events["track"], -events["wall"], events["start"]))
            == np.arange(len(events))
        ).all()
        assert (events["wall"] >= 0).all()
        assert 0 <= events["name"].min() and events["name"].max() < len(trace.names)
        assert 0 <= events["track"].min() and events["track"].max() < len(trace.tracks)
        assert events["collective"].max() < len(trace.collectives) and events["shape"].max() < max(
            len(trace.shapes), 1
        )
