"""Waiting for batches, and when nothing can be said of it."""

import pytest
from traces.numbers.lines import AUTOGRAD, LOADER, kernel, operator, said, trace

from feedline.analysis.traces.rank_trace import _window_of
from feedline.analysis.traces.trace_budget import device_work, find_input, find_waits
from feedline.analysis.traces.trace_steps import find_steps, find_threads

STEP = said("ProfilerStep#1", 0, 100)


def found(*rows):
    one = trace(*rows)
    who = find_threads(one)
    return find_input(
        one, who, _window_of(one, find_steps(one, who)), find_waits(one, who), device_work(one).busy
    )


def test_a_stall_is_waiting_for_a_batch_while_the_device_has_no_work():
    one = found(STEP, said(LOADER, 0, 60), kernel(40, 80))

    assert (one.loader_pct, one.stall_pct) == (60, 40)
    assert one.speedup_ceiling == pytest.approx(1 / 0.6)
    assert one.idle_explained_pct == pytest.approx(100 * 40 / 60)
    assert one.calls == 1 and one.annotations == (LOADER,) and one.reasons == {}


def test_what_lies_outside_of_the_profiled_steps_does_not_count():
    assert found(STEP, said(LOADER, -50, 10), kernel(-50, -20), kernel(90, 100)).stall_pct == 10


def test_another_threads_loader_is_not_waited_for():
    assert (
        found(STEP, said(LOADER, 0, 10), said(LOADER, 20, 70, AUTOGRAD), kernel(90, 100)).stall_pct
        == 10
    )


def test_without_steps_the_window_is_the_whole_trace():
    one = found(
        operator("aten::empty", 0, 1),
        said(LOADER, 50, 60),
        kernel(70, 100),
        operator("aten::mm", 60, 62),
    )

    assert one.window_ns == 100_000 and one.stall_pct == 10


def test_the_window_is_the_steps_however_they_were_found():
    ends = [said("Optimizer.step#SGD.step", at - 10, at) for at in (400, 500, 600)]
    waits = [said(LOADER, at, at + 20) for at in (310, 410, 510)]

    one = found(operator("aten::empty", 0, 1), *waits, *ends, kernel(590, 600))

    assert one.window_ns == 200_000 and one.stall_pct == 20 and one.calls == 2


def test_without_an_annotation_of_a_loader_nothing_is_said_and_why():
    one = found(STEP, kernel(40, 80), said("## data_load ##", 0, 30))

    assert one.loader_pct is one.stall_pct is one.speedup_ceiling is None
    assert (
        "no DataLoader range" in one.reasons["stall_pct"]
        and "## data_load ##" in one.reasons["stall_pct"]
    )


def test_without_a_device_the_loaders_share_is_known_but_no_stall():
    one = found(STEP, said(LOADER, 0, 30), operator("aten::mm", 30, 90))

    assert one.loader_pct == 30
    assert one.stall_pct is one.speedup_ceiling is None
    assert set(one.reasons) == {"stall_pct", "speedup_ceiling"}
    assert "no device activity" in one.reasons["stall_pct"]


def test_a_trace_of_the_device_alone_says_nothing_of_the_loader():
    assert "no host threads" in found(kernel(0, 10)).reasons["loader_pct"]


def test_nothing_but_waiting_has_no_ceiling():
    assert found(STEP, said(LOADER, 0, 100), kernel(200, 300)).speedup_ceiling is None


@pytest.mark.parametrize(
    "name",
    [
        "enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__",
        "enumerate(DataLoader)#_StatefulMultiProcessingDataLoaderIter.__next__",
        "[pl][profile][_TrainingEpochLoop].train_dataloader_next",
        "[_TrainingEpochLoop].train_dataloader_next",
        "[pl][profile][_EvaluationLoop].val_next",
        "feedline:next",
        "DALI:[DALI][Executor] RunCPU",
    ],
)
def test_loaders_of_all_kinds_are_known_by_their_ranges(name):
    assert found(STEP, said(name, 0, 30), kernel(50, 100)).stall_pct == 30


@pytest.mark.parametrize(
    "name", ["forward", "Optimizer.step#SGD.step", "next", "data", "enumerate"]
)
def test_other_ranges_are_not_taken_for_a_loader(name):
    assert found(STEP, said(name, 0, 30), kernel(50, 100)).stall_pct is None
