"""One rank's figures together, sent from a process to its parent."""

import pickle

import numpy as np
from hypothesis import assume, given, settings
from traces.numbers.lines import (
    LOADER,
    MAIN,
    NCCL,
    SECOND,
    SIDE,
    call,
    kernel,
    operator,
    said,
    trace,
)
from traces.strategies import traces

from feedline.analysis.traces.rank_trace import summarise
from feedline.analysis.traces.trace_budget import STEP_PARTS
from feedline.analysis.traces.trace_columns import CollectiveArgs

ABOUT = CollectiveArgs("allreduce", "0", (0, 1), 2, 7)


def test_collectives_carry_what_ranks_are_compared_by():
    one = trace(
        said("ProfilerStep#1", 0, 100),
        said("nccl:all_reduce", 0, 10),
        operator("record_param_comms", 1, 9, collective=ABOUT),
        call("cudaLaunchKernelExC", 2, 3, correlation=1),
        kernel(20, 40, NCCL, SIDE, correlation=1),
        kernel(30, 50),
    )
    found = summarise(one).collectives

    row = found.table[0]
    assert (row["start"], row["end"], row["launched"]) == (20_000, 40_000, 2000)
    assert (found.names[row["name"]], found.names[row["said"]]) == (NCCL, "nccl:all_reduce")
    assert found.args[row["args"]] == ABOUT and found.streams[row["stream"]] == SIDE
    assert found.hidden.tolist() == [[30_000, 40_000]]


def test_what_the_kernel_itself_says_comes_before_what_is_around_its_launch():
    other = CollectiveArgs("broadcast")
    one = trace(
        operator("record_param_comms", 1, 9, collective=other), call("cudaLaunchKernel", 2, 3, correlation=1),
        kernel(20, 40, NCCL, SIDE, correlation=1, collective=ABOUT),
    )  # fmt: skip
    found = summarise(one).collectives

    assert [found.args[number] for number in found.table["args"]] == [ABOUT]


def test_a_collective_that_nothing_is_known_of_but_its_name_says_so():
    found = summarise(trace(kernel(20, 40, NCCL))).collectives

    assert found.table[["launched", "said", "args"]].tolist() == [(-1, -1, -1)]


def test_before_each_collective_stands_what_the_rank_was_doing():
    one = trace(
        said("ProfilerStep#1", 0, 200),
        said(LOADER, 0, 60),
        kernel(60, 80),
        kernel(80, 100, NCCL, SIDE),
        kernel(100, 130),
        kernel(150, 160, NCCL, SIDE),
        kernel(155, 170, NCCL, SECOND),
    )
    found = [dict(zip(STEP_PARTS, row)) for row in summarise(one).collectives.before.tolist()]

    assert {name: ns // 1000 for name, ns in found[0].items() if ns} == {"input": 60, "compute": 20}
    assert {name: ns // 1000 for name, ns in found[1].items() if ns} == {
        "compute": 30,
        "unexplained": 20,
    }
    assert not any(found[2].values())  # it began before the last had ended


def test_gloos_ranges_are_the_collectives_of_a_trace_without_a_device():
    found = summarise(
        trace(said("gloo:all_reduce", 10, 30), operator("aten::mm", 0, 5))
    ).collectives

    assert [found.names[number] for number in found.table["name"]] == ["gloo:all_reduce"]


def test_a_summary_tells_all_devices_together_and_the_main_thread():
    found = summarise(trace(kernel(0, 10), kernel(0, 50, track=SECOND), operator("aten::mm", 0, 5)))

    assert found.main == MAIN
    assert found.gpu.busy_ns == 50_000


def test_a_summary_does_not_grow_with_events():
    def size(steps):
        rows = [kernel(at * 10, at * 10 + 5) for at in range(100 * steps)] + [
            said("ProfilerStep#1", 0, 1000 * steps)
        ]
        return len(pickle.dumps(summarise(trace(*rows))))

    assert size(40) < size(2) + 1000


@settings(max_examples=50, deadline=None)
@given(traces())
def test_any_trace_has_a_summary_that_survives_pickling(one):
    found = pickle.loads(pickle.dumps(summarise(one)))

    assert found.events == len(one.events)
    assert found.input.stall_ns is None or 0 <= found.input.stall_ns <= found.input.idle_ns
    assert (
        found.gpu.busy_ns <= found.gpu.span_ns and found.gpu.hidden_ns <= found.gpu.communication_ns
    )
    assert len(found.collectives.before) == len(found.collectives.table)


@settings(max_examples=25, deadline=None)
@given(traces())
def test_figures_do_not_depend_on_how_tracks_and_names_are_numbered(one):
    assume(
        len(np.unique(one.events[["start", "wall", "track"]])) == len(one.events)
    )  # names order what is otherwise the same
    names = np.arange(len(one.names))[::-1]
    turned = one.events.copy()
    turned["name"] = names[turned["name"]]
    turned = turned[np.lexsort((turned["name"], turned["track"], -turned["wall"], turned["start"]))]
    other = type(one)(**{**vars(one), "events": turned, "names": one.names[::-1]})
    a, b = summarise(one), summarise(other)

    assert (a.gpu, a.input.stall_ns, a.budget.shares, a.copies) == (
        b.gpu,
        b.input.stall_ns,
        b.budget.shares,
        b.copies,
    )
    assert a.steps.edges.tolist() == b.steps.edges.tolist()
