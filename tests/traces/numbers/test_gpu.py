"""What a device was busy with."""

from traces.numbers.lines import LOADER, NCCL, SIDE, kernel, line, said, trace

from feedline.analysis.traces.trace_budget import DeviceWork, GpuFigures, device_work
from feedline.analysis.traces.trace_budget import gpu_figures as figures
from feedline.analysis.traces.trace_columns import Kind
from feedline.analysis.traces.trace_steps import TraceWindow

WHOLE = TraceWindow(0, 100_000, 1)


def gpu(work: DeviceWork, window: TraceWindow = WHOLE) -> GpuFigures:
    return figures(work, window)


def test_streams_are_one_timeline_and_what_is_covered_counts_once():
    found = gpu(
        device_work(
            trace(
                kernel(0, 40),
                kernel(10, 60, NCCL, SIDE),
                kernel(20, 30, track=SIDE),
                kernel(90, 100),
            )
        )
    )

    assert (found.span_ns, found.busy_ns, found.compute_ns) == (100_000, 70_000, 50_000)
    assert (found.idle_pct, found.compute_pct, found.other_pct, found.overlap_pct_of_comm) == (
        30,
        50,
        20,
        60,
    )
    assert found.exposed_comm_s == 20e-6


def test_what_lies_outside_of_the_steps_does_not_count():
    found = gpu(
        device_work(trace(kernel(0, 40), kernel(30, 60, NCCL, SIDE), kernel(90, 130))),
        TraceWindow(20_000, 120_000, 1),
    )

    assert (found.span_ns, found.busy_ns, found.compute_ns) == (100_000, 70_000, 50_000)
    assert (found.idle_pct, found.compute_pct, found.exposed_comm_pct) == (30, 50, 20)


def test_communication_that_no_computing_covers_is_exposed_beside_a_copy_too():
    found = gpu(
        device_work(
            trace(
                kernel(0, 40, NCCL), line(Kind.COPY, "Memcpy HtoD (Pinned -> Device)", 30, 50, SIDE)
            )
        )
    )

    assert found.exposed_comm_s == 40e-6
    assert found.overlap_pct_of_comm == 0


def test_the_shadow_of_an_annotation_is_no_work():
    found = gpu(
        device_work(
            trace(kernel(10, 20), line(Kind.DEVICE_ANNOTATION, "ProfilerStep#1", 0, 100, SIDE))
        )
    )

    assert found.busy_ns == 10_000


def test_without_work_of_a_device_every_figure_is_none_with_a_reason():
    found = gpu(device_work(trace(said(LOADER, 0, 10))))

    for name in (
        "span_s",
        "idle_pct",
        "compute_pct",
        "other_pct",
        "overlap_pct_of_comm",
        "exposed_comm_s",
        "exposed_comm_pct",
    ):
        assert getattr(found, name) is None
        assert "no device activity" in found.reasons[name]


def test_without_communication_there_is_no_overlap_but_nothing_exposed():
    found = gpu(device_work(trace(kernel(0, 10))))

    assert found.overlap_pct_of_comm is None and found.exposed_comm_s == 0
    assert found.reasons == {"overlap_pct_of_comm": "no communication ran"}
