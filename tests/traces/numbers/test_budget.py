"""Every nanosecond of a step has one part, and it is the right one."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from traces.numbers.lines import (
    AUTOGRAD,
    LOADER,
    NCCL,
    SIDE,
    WATCHDOG,
    call,
    kernel,
    line,
    operator,
    said,
    trace,
)
from traces.strategies import traces

from feedline.analysis.intervals import common, union
from feedline.analysis.traces.rank_trace import _window_of
from feedline.analysis.traces.trace_budget import (
    _ONE_RANK,
    STEP_PARTS,
    Activity,
    StepBudget,
    budget_of_rank,
    device_work,
    find_activity,
    find_waits,
    split_steps,
    with_waiting,
)
from feedline.analysis.traces.trace_columns import Kind
from feedline.analysis.traces.trace_steps import find_steps, find_threads

STEP = said("ProfilerStep#1", 0, 100)


def budget(one):
    who, work = find_threads(one), device_work(one)
    steps = find_steps(one, who)
    return budget_of_rank(
        steps,
        _window_of(one, steps),
        find_activity(one, who, steps, work, find_waits(one, who)),
        work,
    )


def us(*rows):
    """Parts of the first step that are not 0, in us."""
    return {
        name: int(part[0]) / 1000
        for name, part in budget(trace(STEP, *rows)).parts.items()
        if part[0]
    }


sets = st.lists(st.tuples(st.integers(0, 40), st.integers(0, 40)), max_size=5).map(
    lambda rows: union(*np.array(rows, np.int64).reshape(-1, 2).T)
)
activities = st.builds(Activity, *[sets] * 6)
edges = st.lists(st.integers(-5, 45), max_size=5, unique=True).map(
    lambda at: np.array(sorted(at), np.int64)
)


def test_what_the_device_does_comes_before_what_the_host_does():
    assert us(kernel(0, 100), said(LOADER, 0, 50), operator("aten::mm", 0, 100)) == {"compute": 100}


def test_each_part_has_the_time_that_none_before_it_has():
    rows = [
        kernel(0, 20),
        kernel(10, 40, NCCL, SIDE),
        line(Kind.COPY, "Memcpy HtoD (Pinned -> Device)", 30, 50, SIDE),
    ]
    rows += [
        said(LOADER, 45, 60),
        call("cudaStreamSynchronize", 55, 70),
        operator("aten::mm", 55, 80),
    ]

    assert us(*rows) == {
        "compute": 20, "exposed_transfer": 20, "exposed_copy": 10, "input": 10, "synchronisation": 10, "host_launch": 10, "unexplained": 20,
    }  # fmt: skip


def test_a_named_part_of_a_step_is_the_hosts_but_what_holds_whole_steps_explains_nothing():
    assert us(said("forward", 10, 40), said("epoch", -10, 110), kernel(100, 110)) == {
        "host_launch": 30,
        "unexplained": 70,
    }


def test_autograds_thread_works_for_the_training_and_nccls_watchdog_does_not():
    rows = [
        operator("aten::mm", 10, 20, AUTOGRAD),
        call("cudaEventQuery", 50, 90, WATCHDOG),
        kernel(100, 110),
    ]

    assert us(*rows) == {"host_launch": 10, "unexplained": 90}


def test_python_functions_of_the_main_thread_are_the_hosts():
    assert us(line(Kind.PYTHON, "train.py(3): main", 20, 60), kernel(100, 110)) == {
        "host_launch": 40,
        "unexplained": 60,
    }


def test_one_rank_alone_says_that_it_cannot_tell_waiting():
    found = budget(trace(STEP, kernel(0, 40, NCCL)))

    assert found.parts["waiting_for_rank"].tolist() == [0] and _ONE_RANK in found.notes


def test_without_a_device_operators_are_the_compute():
    found = budget(
        trace(
            STEP, operator("aten::mm", 40, 90), said(LOADER, 0, 30), operator("aten::stack", 10, 20)
        )
    )

    assert {name: int(part[0]) // 1000 for name, part in found.parts.items() if part[0]} == {
        "compute": 50,
        "input": 30,
        "unexplained": 20,
    }
    assert any("no device activity" in note for note in found.notes)


def test_without_steps_the_budget_is_of_the_whole_trace():
    found = budget(
        trace(kernel(10, 60), operator("aten::mm", 0, 20), operator("aten::mm", 90, 110))
    )

    assert found.edges.tolist() == [0, 110_000]
    assert found.shares["compute"] == pytest.approx(50 / 110)
    assert any("no steps" in note for note in found.notes)


def test_the_budget_of_nothing_is_empty():
    found = budget(trace())

    assert found.shares == {} and set(found.parts) == set(STEP_PARTS)


@given(activities, edges, sets)
def test_parts_sum_to_the_steps_whatever_went_on(act, at, waiting):
    parts = split_steps(act, at[:-1], at[1:], waiting)

    assert list(parts) == list(STEP_PARTS)
    assert all((part >= 0).all() and part.dtype == np.int64 for part in parts.values())
    assert (sum(parts.values()) == at[1:] - at[:-1]).all()


@given(activities, edges, sets)
def test_each_moment_belongs_to_the_first_part_that_holds_it(act, at, waiting):
    layers = (
        act.compute,
        common(waiting, act.communication),
        act.communication,
        act.copy,
        act.input,
        act.synchronisation,
        act.host,
    )
    wanted = {name: np.zeros(max(len(at) - 1, 0), np.int64) for name in STEP_PARTS}
    for number in range(max(len(at) - 1, 0)):
        for moment in range(at[number], at[number + 1]):
            held = [
                bool(((layer[:, 0] <= moment) & (moment < layer[:, 1])).any()) for layer in layers
            ]
            wanted[STEP_PARTS[held.index(True) if True in held else -1]][number] += 1

    found = split_steps(act, at[:-1], at[1:], waiting)

    assert {name: part.tolist() for name, part in found.items()} == {
        name: part.tolist() for name, part in wanted.items()
    }


@given(activities, edges, sets)
def test_waiting_that_is_known_later_moves_out_of_transfer_as_if_it_had_been_known(
    act, at, waiting
):
    alone = StepBudget(at, split_steps(act, at[:-1], at[1:]), (_ONE_RANK,))
    found = with_waiting(alone, common(act.communication, act.compute), act.communication, waiting)

    wanted = split_steps(act, at[:-1], at[1:], waiting)
    assert {name: part.tolist() for name, part in found.parts.items()} == {
        name: part.tolist() for name, part in wanted.items()
    }
    assert found.notes == ()


@settings(max_examples=50, deadline=None)
@given(traces())
def test_the_budget_of_any_trace_closes(one):
    found = budget(one)

    assert all((part >= 0).all() for part in found.parts.values())
    assert (sum(found.parts.values()) == np.diff(found.edges)).all()
    assert not found.shares or sum(found.shares.values()) == pytest.approx(1, abs=1e-12)
