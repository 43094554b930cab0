"""The figures of real traces by others' conventions, in whole nanoseconds: of the whole trace,
where a report is of the steps.
"""

import functools
import json

import pytest
from needs import TRACES

from feedline.analysis.intervals import joined, length, without
from feedline.analysis.traces.kineto.kineto_reader import read_kineto
from feedline.analysis.traces.rank_trace import RankTrace, _window_of, summarise
from feedline.analysis.traces.trace_budget import (
    DeviceWork,
    GpuFigures,
    Input,
    device_work,
    find_input,
    find_waits,
    gpu_figures,
)
from feedline.analysis.traces.trace_columns import Trace
from feedline.analysis.traces.trace_steps import TraceWindow, find_threads

REFERENCE = TRACES / "reference.json"
WANTED = json.loads(REFERENCE.read_text())["traces"] if REFERENCE.exists() else {}
POINT = 0.01
# of a float64 that holds microseconds of Unix time, in which the reference's ends were held; the
# text is finer
QUANTUM_US = 0.25

pytestmark = pytest.mark.skipif(not WANTED, reason=f"the traces are not in {TRACES}")
each_trace = pytest.mark.parametrize("name", WANTED)


@functools.cache
def read(name: str) -> Trace:
    return read_kineto(str(TRACES / name))


@functools.cache
def of(name: str) -> RankTrace:
    return summarise(read(name))


@functools.cache
def whole(name: str) -> tuple[DeviceWork, GpuFigures]:
    """What the device did from its first work to its last."""
    work = device_work(read(name))
    return work, gpu_figures(work, TraceWindow(int(work.busy[0, 0]), int(work.busy[-1, 1]), 1))


def input_of(name: str) -> Input:
    """Of the ProfilerStep ranges; without them, from the first wait or work to the last work."""
    trace, steps = read(name), of(name).steps
    who = find_threads(trace)
    waits, busy = find_waits(trace, who), whole(name)[0].busy
    either = joined(waits, busy)
    window = (
        _window_of(trace, steps)
        if steps.by == "profiler_step"
        else TraceWindow(int(either[0, 0]), int(busy[-1, 1]), 1)
    )
    return find_input(trace, who, window, waits, busy)


@each_trace
def test_the_span_and_exposed_communication_are_exact(name):
    (work, found), wanted = whole(name), WANTED[name]
    alone = without(
        work.communication, joined(work.compute, work.copy)
    )  # the reference takes a copy beside it for work
    near = 0 if float(wanted["span_us"]).is_integer() else QUANTUM_US

    assert found.span_ns / 1000 == pytest.approx(wanted["span_us"], rel=0, abs=near)
    assert length(alone) / 1000 == pytest.approx(wanted["exposed_comm_us"], rel=0, abs=near)


@each_trace
def test_idle_compute_other_and_overlap_are_within_a_hundredth_of_a_point(name):
    gpu, wanted = whole(name)[1], WANTED[name]

    assert gpu.idle_pct == pytest.approx(wanted["idle_pct"], rel=0, abs=POINT)
    assert gpu.compute_pct == pytest.approx(wanted["comp_pct"], rel=0, abs=POINT)
    assert gpu.other_pct == pytest.approx(wanted["noncomp_pct"], rel=0, abs=POINT)
    if wanted["overlap_pct_of_comm"] is None:
        assert gpu.overlap_pct_of_comm is None and gpu.reasons["overlap_pct_of_comm"]
    else:
        assert gpu.overlap_pct_of_comm == pytest.approx(
            wanted["overlap_pct_of_comm"], rel=0, abs=POINT
        )


@each_trace
def test_input_stall_is_within_a_hundredth_of_a_point_or_cannot_be_said(name):
    found, wanted = input_of(name), WANTED[name]

    if not wanted["loader_pct"]:  # the reference has 0 where no annotation of a loader exists
        assert (
            found.loader_pct
            is found.stall_pct
            is found.speedup_ceiling
            is found.idle_explained_pct
            is None
        )
        assert set(found.reasons) == {"loader_pct", "stall_pct", "speedup_ceiling"}
        return
    assert found.reasons == {}
    assert found.loader_pct == pytest.approx(wanted["loader_pct"], rel=0, abs=POINT)
    assert found.stall_pct == pytest.approx(wanted["input_stall_pct"], rel=0, abs=POINT)
    assert found.idle_explained_pct == pytest.approx(wanted["idle_explained_pct"], rel=0, abs=POINT)
    assert found.speedup_ceiling == pytest.approx(wanted["speedup_ceiling"], rel=0, abs=0.001)


@each_trace
def test_the_budget_of_each_step_closes(name):
    one = of(name).budget

    assert (sum(one.parts.values()) == one.edges[1:] - one.edges[:-1]).all()
    assert all((part >= 0).all() for part in one.parts.values())
    assert sum(one.shares.values()) == pytest.approx(1, abs=1e-12)


def test_a_training_that_waits_for_its_loader_half_the_time_is_told_so():
    found = of("kineto/h100_owlv2_input_bound.json.gz")

    assert round(found.input.stall_pct, 1) == 51.1
    assert round(found.input.speedup_ceiling, 2) == 2.05
    assert max(found.budget.shares, key=found.budget.shares.get) == "input"


def test_a_healthy_training_is_not_blamed_for_its_input():
    found = of("kineto/a100_rank3of8_healthy.json.gz")

    assert found.input.stall_pct <= 0.1
    assert found.budget.shares["input"] <= 0.001


def test_a_resnet_50_costs_as_many_flop_as_its_paper_says():
    of_each = {row.name: row for row in of("kineto/resnet50_autograd_workers4_2021.json.gz").calls}
    images = 5 * 32  # steps between calls of the optimizer, and batch of the trace

    forward = of_each["aten::cudnn_convolution"].flop + of_each["aten::addmm"].flop

    assert forward / images == pytest.approx(
        2 * 4.09e9, rel=0.01
    )  # 4.09 G multiply-adds, fully connected layer too
    assert (
        of_each["aten::cudnn_convolution_backward"].flop
        == 2 * of_each["aten::cudnn_convolution"].flop
    )
