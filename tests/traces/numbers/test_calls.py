"""What the host called, nested, and what came of it on the device."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from traces.numbers.lines import AUTOGRAD, NCCL, SIDE, call, kernel, line, operator, said, trace

from feedline.analysis.intervals import flatten
from feedline.analysis.traces.calls import _nest, sum_calls
from feedline.analysis.traces.kernel_names import Copy
from feedline.analysis.traces.rank_trace import _copies, _kernels
from feedline.analysis.traces.trace_columns import CollectiveArgs, Kind
from feedline.analysis.traces.trace_steps import TraceWindow, find_threads

WHOLE = TraceWindow(0, 1 << 40, 0)


def rows(one, window=WHOLE):
    return {row.name: row for row in sum_calls(one, find_threads(one), window).rows}


@st.composite
def nested(draw):
    """Spans of one thread, each within another or beside it, sorted as a trace sorts them."""
    found = []

    def fill(begin, end, depth):
        at = begin
        while at < end and len(found) < 40 and draw(st.booleans()):
            start = draw(st.integers(at, end))
            stop = draw(st.integers(start, end))
            found.append((start, stop - start))
            if depth and stop > start:
                fill(start, stop, depth - 1)
            at = stop + 1

    fill(0, 200, 4)
    found.sort(key=lambda row: (row[0], -row[1]))
    return np.array(found, np.int64).reshape(-1, 2).T


@given(nested())
def test_own_time_is_that_of_the_innermost(spans):
    start, wall = (np.ascontiguousarray(part) for part in spans)
    pieces = flatten(start, wall)
    wanted = (
        np.bincount(pieces.owner, pieces.end - pieces.start, len(start))
        if len(pieces.owner)
        else np.zeros(len(start))
    )

    assert _nest(start, wall).own.tolist() == wanted.tolist()


@given(st.lists(st.tuples(st.integers(0, 50), st.integers(0, 30)), max_size=20))
def test_spans_that_do_not_nest_still_make_a_tree(spans):
    start, wall = (
        np.array(sorted(spans, key=lambda row: (row[0], -row[1])), np.int64).reshape(-1, 2).T
    )
    tree = _nest(np.ascontiguousarray(start), np.ascontiguousarray(wall))

    assert (tree.parent < np.arange(len(start))).all()
    assert (tree.own >= 0).all() and (tree.own <= wall).all()
    assert (tree.after > np.arange(len(start))).all() and (tree.after <= len(start)).all()
    assert sorted(np.concatenate([*tree.levels, np.zeros(0, np.int64)]).tolist()) == list(
        range(len(start))
    )


def test_a_child_that_ends_one_tick_after_its_parent_is_still_its_child():
    tree = _nest(np.array([0, 5, 9]), np.array([10, 6, 1]))

    assert tree.parent.tolist() == [-1, 0, 1]
    assert tree.own.tolist() == [5, 4, 1]


def test_two_hundred_thousand_calls_fifty_deep_are_quick():
    depth, each = np.tile(np.arange(50), 4000), np.repeat(np.arange(4000), 50)
    tree = _nest(each * 10_000 + depth, 9000 - 2 * depth)

    assert len(tree.levels) == 50
    assert (tree.own[depth < 49] == 2).all()


def test_an_operators_own_time_is_without_operators_functions_and_runtime_calls_inside():
    found = rows(
        trace(
            operator("aten::linear", 0, 100),
            operator("aten::addmm", 20, 80),
            call("cudaLaunchKernel", 60, 70),
        )
    )

    assert (found["aten::linear"].total_ns, found["aten::linear"].own_ns) == (100_000, 40_000)
    assert found["aten::addmm"].own_ns == 50_000


def test_device_time_belongs_to_who_launched_it_and_to_its_callers():
    found = rows(
        trace(
            said("forward", 0, 200),
            line(Kind.PYTHON, "model.py(7): forward", 0, 150),
            operator("aten::linear", 0, 100),
            operator("aten::addmm", 20, 80),
            call("cudaLaunchKernel", 60, 70, correlation=5),
            call("cudaLaunchKernel", 90, 95, correlation=6),
            kernel(300, 330, correlation=5),
            kernel(330, 334, correlation=6),
            kernel(340, 350, correlation=7),
        )
    )

    assert (found["aten::linear"].device_ns, found["aten::addmm"].device_ns) == (34_000, 30_000)
    assert found["forward"].device_ns == found["model.py(7): forward"].device_ns == 34_000


def test_threads_do_not_nest_into_each_other():
    found = rows(trace(operator("a", 0, 100), operator("b", 20, 80, AUTOGRAD)))

    assert found["a"].own_ns == 100_000 and found["b"].own_ns == 60_000


def test_an_operator_within_one_of_its_own_name_counts_once():
    found = rows(trace(operator("aten::copy_", 0, 100), operator("aten::copy_", 10, 90)))[
        "aten::copy_"
    ]

    assert (found.count, found.total_ns, found.own_ns) == (1, 100_000, 100_000)


def test_flop_are_counted_once_at_the_innermost_operator_that_has_a_formula():
    sizes = [(8, 16), (4, 16)]
    one = trace(
        operator("aten::linear", 0, 100, sizes=sizes),
        operator("aten::addmm", 20, 80, sizes=[(4,), (8, 16), (16, 4)]),
        call("cudaLaunchKernel", 60, 70, correlation=5),
        kernel(300, 301, correlation=5),
        operator("aten::linear", 200, 250, sizes=sizes),
    )
    found = rows(one)

    assert found["aten::addmm"].flop == found["aten::linear"].flop == 2 * 8 * 16 * 4
    assert found["aten::addmm"].nbytes == 4 * (4 + 8 * 16 + 16 * 4 + 8 * 4)
    assert found["aten::addmm"].flop_per_s == 1024 / 1e-6
    assert found["aten::linear"].flop_per_s is None  # that one launched nothing


def test_without_a_device_flop_are_over_the_time_of_the_host():
    found = rows(trace(operator("aten::mm", 0, 10, sizes=[(8, 16), (16, 4)])))["aten::mm"]

    assert found.flop_per_s == pytest.approx(1024 / 10e-6)


def test_kernels_are_summed_by_name_with_the_operator_that_launched_most_of_them():
    one = trace(
        operator("aten::add", 0, 10),
        call("cudaLaunchKernel", 1, 2, correlation=1),
        operator("aten::mul", 10, 20),
        call("cudaLaunchKernel", 11, 12, correlation=2),
        call("cudaLaunchKernel", 30, 31, correlation=3),
        kernel(100, 110, "elementwise", correlation=1),
        kernel(110, 130, "elementwise", correlation=2),
        kernel(130, 140, "lost", correlation=3),
    )
    who = find_threads(one)
    found = _kernels(one, who, sum_calls(one, who, WHOLE), 40_000, WHOLE)

    assert [(row.name, row.count, row.total_ns, row.busy_share, row.operator) for row in found] == [
        ("elementwise", 2, 30_000, 0.75, "aten::mul"),
        ("lost", 1, 10_000, 0.25, ""),
    ]


def test_kernels_that_run_at_once_take_their_share_of_busy_time_once():
    one = trace(
        kernel(100, 120, "gemm"),
        kernel(100, 120, "gemm", SIDE),
        kernel(115, 130, "gemm", SIDE),
        kernel(130, 140, "copy"),
    )
    who = find_threads(one)
    found = _kernels(one, who, sum_calls(one, who, WHOLE), 40_000, WHOLE)

    assert [(row.name, row.total_ns, row.busy_share) for row in found] == [
        ("gemm", 55_000, 0.75),
        ("copy", 10_000, 0.25),
    ]


def test_communication_is_under_the_name_of_its_range():
    one = trace(
        said("nccl:all_reduce", 0, 10),
        operator("record_param_comms", 1, 9),
        call("cudaLaunchKernelExC", 2, 3, correlation=1),
        kernel(20, 30, NCCL, SIDE, correlation=1),
    )
    who = find_threads(one)

    assert [
        (row.operator, row.communication)
        for row in _kernels(one, who, sum_calls(one, who, WHOLE), 1, WHOLE)
    ] == [("nccl:all_reduce", True)]


def test_a_runtime_call_knows_the_collective_around_it():
    about = CollectiveArgs("allreduce", "0")
    one = trace(
        operator("record_param_comms", 1, 9, collective=about),
        call("cudaLaunchKernelExC", 2, 3, correlation=1),
    )
    found = sum_calls(one, find_threads(one), WHOLE).collective

    assert [one.collectives[number] for number in found[found >= 0]] == [about]


def test_copies_are_summed_by_direction_and_memory():
    pinned, pageable = "Memcpy HtoD (Pinned -> Device)", "Memcpy HtoD (Pageable -> Device)"
    found = _copies(
        trace(
            line(Kind.COPY, pinned, 0, 10, SIDE, nbytes=120_000),
            line(Kind.COPY, pinned, 20, 30, SIDE, nbytes=80_000),
            line(Kind.COPY, pinned, 30, 40, SIDE),
            line(Kind.COPY, pageable, 40, 45, SIDE),
        ),
        WHOLE,
    )

    assert [(row.which, row.count, row.total_ns, row.nbytes, row.gb_per_s) for row in found] == [
        (Copy("HtoD", "pinned"), 3, 30_000, 200_000, 10.0),
        (Copy("HtoD", "pageable"), 1, 5_000, None, None),
    ]


def test_tables_are_of_the_steps_alone():
    pinned = "Memcpy HtoD (Pinned -> Device)"
    one = trace(
        operator("aten::mm", 0, 5), call("cudaLaunchKernel", 1, 2, correlation=1), kernel(8, 16, correlation=1),
        operator("aten::mm", 20, 25), kernel(28, 36),
        line(Kind.COPY, pinned, 2, 9, SIDE, nbytes=7), line(Kind.COPY, pinned, 5, 15, SIDE, nbytes=90),
    )  # fmt: skip
    who, steps = find_threads(one), TraceWindow(10_000, 30_000, 2)
    called = sum_calls(one, who, steps)

    (computed,), (copied,) = _kernels(one, who, called, 8000, steps), _copies(one, steps)

    assert (computed.count, computed.total_ns, computed.busy_share, computed.operator) == (
        2,
        8000,
        1.0,
        "aten::mm",
    )
    assert (copied.count, copied.total_ns, copied.nbytes, copied.gb_per_s) == (
        1,
        5000,
        90,
        90 / 10_000,
    )
    assert {row.name: row.count for row in called.rows} == {"aten::mm": 1}
