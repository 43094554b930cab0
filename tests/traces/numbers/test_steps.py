"""Where steps begin, by whatever the trace holds."""

import numpy as np
import pytest
from traces.numbers.lines import (
    AUTOGRAD,
    LOADER,
    MAIN,
    NCCL,
    SIDE,
    STREAM,
    US,
    call,
    kernel,
    line,
    operator,
    said,
    trace,
)

from feedline.analysis.traces.trace_columns import Kind
from feedline.analysis.traces.trace_steps import NO_TRACK, find_steps, find_threads


def steps(*rows):
    one = trace(*rows)
    found = find_steps(one, find_threads(one))
    return found.by, (found.edges // US).tolist()


def main(*rows):
    one = trace(*rows)
    number = find_threads(one).main
    return one.tracks[number] if number != NO_TRACK else None


OPTIMIZER = [said("Optimizer.step#SGD.step", at, at + 10) for at in (90, 190, 290)]
PROFILER = [said(f"ProfilerStep#{number}", at, at + 100) for number, at in ((9, 0), (10, 100))]


def test_profiler_steps_come_before_all_else():
    assert steps(*PROFILER, *OPTIMIZER) == ("profiler_step", [0, 100, 200])


def test_the_shadows_of_profiler_steps_on_the_device_are_no_steps():
    shadows = [line(Kind.DEVICE_ANNOTATION, "ProfilerStep#9", 3, 140, STREAM)]

    assert steps(*PROFILER, *shadows) == ("profiler_step", [0, 100, 200])


#: What profile.stop() leaves: a range without work, in which the loader says that it is at its end.
STOPPED = [said("ProfilerStep#11", 200, 203), said(LOADER, 200, 202)]


@pytest.mark.parametrize(
    "work",
    [
        [operator("aten::mm", 1, 9), operator("aten::mm", 101, 109)],
        [kernel(1, 9), kernel(101, 109)],
        [  # the device is behind the host
            call("cudaLaunchKernel", 101, 102, correlation=5),
            kernel(201, 230, correlation=5),
        ],
    ],
)
def test_the_range_that_stopping_the_profiler_closes_is_no_step(work):
    assert steps(*PROFILER, *STOPPED, *work) == ("profiler_step", [0, 100, 200])


@pytest.mark.parametrize("work", [operator("aten::mm", 201, 202), kernel(201, 230)])
def test_a_short_last_profiler_step_with_work_is_a_step(work):
    rows = [*PROFILER, *STOPPED, operator("aten::mm", 1, 9), work]

    assert steps(*rows) == ("profiler_step", [0, 100, 200, 203])


def test_profiler_steps_that_were_written_as_operators_count():
    assert steps(*({**row, "kind": Kind.OPERATOR} for row in PROFILER)) == (
        "profiler_step",
        [0, 100, 200],
    )


def test_feedlines_own_ranges_cut_where_the_optimizer_ends():
    rows = [
        said("feedline:next", at, at + 5) for at in (0, 50, 100, 150, 200)
    ]  # two micro-batches a step
    rows += [said("feedline:optimizer", at, at + 10) for at in (80, 180)] + [
        said("step", at, at + 99) for at in (0, 100)
    ]

    assert steps(*rows) == ("feedline", [90, 190])


@pytest.mark.parametrize(
    "names",
    [
        ("step 1", "step 2"),
        ("iteration_1", "iteration_2"),
        ("train_step",) * 2,
        ("## batch 7 ##", "## batch 8 ##"),
    ],
)
def test_ranges_that_are_named_like_steps_are_steps(names):
    rows = [said(name, at, at + 60) for name, at in zip(names, (0, 100))]
    rows += [said("forward", at, at + 95) for at in (0, 100, 200)]

    assert steps(*rows) == ("range", [0, 100, 160])


def test_a_range_of_any_name_that_repeats_and_leaves_no_gap_is_the_step():
    rows = [said(f"do {number}", at, at + 98) for number, at in enumerate((0, 100, 200))] + [
        said("epoch", 0, 300)
    ]

    assert steps(*rows) == ("range", [0, 100, 200, 298])


def test_steps_end_with_the_optimizer():
    assert steps(*OPTIMIZER) == ("optimizer", [100, 200, 300])


def test_two_optimizers_after_one_batch_are_one_step():
    rows = [said(LOADER, at, at + 5) for at in (0, 100, 200)]
    rows += [
        said("Optimizer.step#Adam.step", at + part, at + part + 5)
        for at in (0, 100, 200)
        for part in (40, 80)
    ]

    assert steps(*rows) == ("optimizer", [85, 185, 285])


def test_a_fused_optimizer_without_an_annotation_is_found_by_its_bursts():
    rows = [
        operator("aten::_fused_adamw_", at + part, at + part + 2)
        for at in (0, 1000, 2000, 3000)
        for part in (0, 3, 6)
    ]

    assert steps(*rows) == ("optimizer", [8, 1008, 2008, 3008])


def test_calls_that_do_not_come_evenly_are_no_steps():
    rows = [operator("aten::_fused_adamw_", at, at + 2) for at in (0, 10, 500, 620, 5000)]

    assert steps(*rows) == ("none", [])


def test_a_row_of_collectives_that_repeats_cuts_the_trace():
    rows = [
        kernel(at + part, at + part + 5, name, SIDE)
        for at in (0, 100, 200, 300)
        for part, name in ((10, NCCL), (30, "ncclKernel_Broadcast"), (60, NCCL))
    ]

    assert steps(*rows) == ("collectives", [10, 110, 210, 310])


def test_buckets_of_one_kind_are_cut_where_they_pause():
    rows = [
        kernel(at + part, at + part + 5, NCCL, SIDE)
        for at in (0, 1000, 2000, 3000)
        for part in (10, 20, 31)
    ]

    assert steps(*rows) == ("collectives", [10, 1010, 2010, 3010])


def test_without_any_of_these_there_are_no_steps_and_the_report_is_told_so():
    one = trace(kernel(0, 10), operator("aten::mm", 0, 5))
    found = find_steps(one, find_threads(one))

    assert (found.by, len(found), len(found.edges)) == ("none", 0, 0)
    assert "whole trace" in found.how


def test_a_trace_of_nothing_has_no_steps():
    assert steps() == ("none", [])


def test_autograds_thread_is_not_the_main_one_though_it_runs_more_operators():
    backward = [
        operator("autograd::engine::evaluate_function: AddmmBackward0", at, at + 8, AUTOGRAD)
        for at in range(0, 90, 10)
    ]
    inside = [operator("aten::mm", at + 1, at + 2, AUTOGRAD) for at in range(0, 90, 10)]

    assert (
        main(*backward, *inside, operator("aten::addmm", 0, 5), operator("aten::addmm", 6, 9))
        == MAIN
    )


def test_the_thread_with_the_loader_is_the_main_one():
    assert (
        main(said(LOADER, 0, 5, AUTOGRAD), *(operator("aten::mm", at, at + 1) for at in range(9)))
        == AUTOGRAD
    )


def test_without_operators_it_is_the_thread_that_launches():
    polls = [call("cudaEventQuery", at, at + 1, AUTOGRAD) for at in range(9)]

    assert (
        main(*polls, call("cudaLaunchKernel", 0, 1, correlation=5), kernel(2, 3, correlation=5))
        == MAIN
    )


def test_a_trace_of_the_device_alone_has_no_main_thread():
    assert main(kernel(0, 10)) is None


def test_edges_are_whole_nanoseconds_in_order():
    one = trace(*PROFILER)

    assert find_steps(one, find_threads(one)).edges.dtype == np.int64
