"""What marks say of two clocks: never nearer than the truth."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from traces.strategies import made

from feedline.analysis.traces.trace_columns import Kind, Trace, Track
from feedline.analysis.traces.windows import _READINGS_NS, _shared_clock
from feedline.profiler.clock import MARK

UNIX, BOOT = 1_790_000_000_000_000_000, 4_000_000_000_000
MAIN = Track("1", "1")


def marked(marks: list[tuple[int, int, int]], origin: int = UNIX) -> Trace:
    """A trace with marks: (what each says, its begin, its length), begins in the trace's time."""
    rows = [
        {"name": f"{MARK}{said}", "track": MAIN, "start": begin - origin, "wall": wall, "kind": Kind.OPERATOR, "shape": None,
         "collective": None, "correlation": -1, "nbytes": -1}
        for said, begin, wall in marks
    ]  # fmt: skip
    return made(rows, rank=0, world_size=1, origin_ns=origin)


delays = st.integers(0, 200_000)
bursts = st.lists(
    st.tuples(
        st.integers(0, 10**9), st.lists(st.tuples(delays, delays, delays), min_size=2, max_size=4)
    ),
    min_size=1,
    max_size=5,
)


def sequence(bursts, offset) -> list[tuple[int, int, int]]:
    """Marks as they come about: read the clock, begin, end, go on.

    ``offset``: Unix time less the clock, at a time of the clock.
    """
    marks, now = [], BOOT
    for pause, burst in bursts:
        now += pause
        for before, wall, after in burst:
            marks.append((now, now + before + offset(now), wall))
            now += before + wall + after + 1
    return marks


@given(bursts=bursts, offset=st.integers(UNIX - BOOT, UNIX + BOOT))
def test_the_true_offset_of_two_steady_clocks_lies_within_the_bound(bursts, offset):
    found = _shared_clock(marked(sequence(bursts, lambda _: offset)), [])

    assert abs(int(found.clock.offset[0]) + offset) <= found.clock.bound + 1


@given(
    bursts=bursts,
    step=st.integers(10**7, 10**9).flatmap(lambda ns: st.sampled_from([ns, -ns])),
    at=st.integers(0, 5),
)
def test_a_clock_that_was_set_on_the_way_is_within_the_bound_everywhere(bursts, step, at):
    border = BOOT + sum(pause + sum(map(sum, burst)) + len(burst) for pause, burst in bursts[:at])
    marks = sequence(bursts, lambda now: UNIX + (step if now >= border else 0))
    found = _shared_clock(marked(marks), [])

    shown = found.clock.to_reference(np.array([begin for _, begin, _ in marks]))
    true = [begin - UNIX - (step if said >= border else 0) for said, begin, _ in marks]
    assert np.abs(shown - true).max() <= found.clock.bound + 1


def test_the_narrowest_gap_counts():
    found = _shared_clock(
        marked(
            [
                (BOOT, UNIX + 90, 10),
                (BOOT + 500, UNIX + 500 + 40, 10),
                (BOOT + 600, UNIX + 600 + 45, 10),
            ]
        ),
        [],
    )

    assert found.marks == 3
    assert (found.clock.offset.tolist(), found.clock.bound) == (
        [BOOT - UNIX + (-40 + 50) // 2],
        45.0,
    )


def test_marks_do_without_unix_time():
    found = _shared_clock(marked([(BOOT, 1000, 10), (BOOT + 100, 1100, 10)], origin=0), [])

    assert found.clock.to_reference(np.array([1000])).tolist() == pytest.approx([BOOT], abs=100)


@pytest.mark.parametrize(
    "name", [MARK, f"{MARK}x", f"{MARK}-5", f"{MARK}{'9' * 30}", f"{MARK}²", "feedline:clock"]
)
def test_what_only_looks_like_a_mark_is_none(name):
    trace = marked([(BOOT, UNIX, 10), (BOOT + 100, UNIX + 100, 10)])
    trace.names[0] = name

    assert _shared_clock(trace, []) is None


def test_without_marks_the_runs_readings_count_with_what_they_differ_by():
    trace = marked([(BOOT, UNIX, 10)])
    anchors = [
        {"perf_counter_ns": BOOT, "time_ns": UNIX},
        {"perf_counter_ns": BOOT + 10**9, "time_ns": UNIX + 10**9 + 2_000_000},
    ]
    found = _shared_clock(trace, anchors)

    assert (found.marks, found.clock.bound) == (0, _READINGS_NS + 2_000_000)
    assert found.clock.to_reference(np.array([UNIX, UNIX + 10**9 + 2_000_000])).tolist() == [
        BOOT,
        BOOT + 10**9,
    ]
    assert "about 12.0 ms" in found.says()


def test_a_trace_of_a_clock_of_its_own_cannot_be_joined_without_marks():
    assert (
        _shared_clock(
            marked([(BOOT, 5, 10)], origin=0), [{"perf_counter_ns": BOOT, "time_ns": UNIX}]
        )
        is None
    )
