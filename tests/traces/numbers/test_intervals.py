"""Sets of moments behave as a bitmap of the same moments does."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from feedline.analysis.intervals import clip, common, covered, holds, joined, length, union, without

WIDTH = 64
spans = st.lists(st.tuples(st.integers(0, WIDTH), st.integers(0, WIDTH)), max_size=12).map(
    lambda rows: np.array(rows, np.int64).reshape(-1, 2)
)


def bits(intervals):
    """bool [WIDTH]: which moments are in any of these."""
    return np.array(
        [any(begin <= at < end for begin, end in intervals.tolist()) for at in range(WIDTH)], bool
    )


def as_set(rows):
    found = union(rows[:, 0], rows[:, 1])
    assert found.dtype == np.int64
    assert (found[:, 1] > found[:, 0]).all() and (found[1:, 0] > found[:-1, 1]).all()
    return found


@given(spans)
def test_a_union_holds_what_any_interval_holds(rows):
    assert (bits(as_set(rows)) == bits(rows)).all()


@given(spans, spans)
def test_two_sets_are_joined_cut_and_taken_from_each_other_as_bits_are(one, other):
    a, b = as_set(one), as_set(other)

    assert (bits(as_set(joined(a, b))) == bits(a) | bits(b)).all()
    assert (bits(as_set(common(a, b))) == bits(a) & bits(b)).all()
    assert (bits(as_set(without(a, b))) == bits(a) & ~bits(b)).all()


@given(spans, st.integers(-3, WIDTH), st.integers(-3, WIDTH))
def test_a_window_of_a_set_holds_what_lies_in_it(rows, begin, end):
    inside = (np.arange(WIDTH) >= begin) & (np.arange(WIDTH) < end)

    assert (bits(as_set(clip(as_set(rows), begin, end))) == bits(rows) & inside).all()


@given(spans, spans)
def test_what_a_set_covers_of_windows_is_counted_even_where_they_overlap(rows, windows):
    begin, end = windows.min(1), windows.max(1)
    found = covered(as_set(rows), begin, end)

    assert found.tolist() == [int(bits(rows)[low:high].sum()) for low, high in zip(begin, end)]
    assert length(as_set(rows)) == bits(rows).sum()


@given(spans)
def test_a_moment_is_in_a_set_or_not(rows):
    assert (holds(as_set(rows), np.arange(WIDTH)) == bits(rows)).all()


def test_nanoseconds_of_unix_time_are_not_rounded():
    now = 1_712_195_495_894_849_501
    found = union(np.array([now, now + 1]), np.array([now + 1, now + 3]))

    assert found.tolist() == [[now, now + 3]]


@pytest.mark.parametrize("order", ["sorted", "shuffled"])
def test_two_million_intervals_are_one_pass(order):
    start = np.arange(2_000_000, dtype=np.int64) * 10
    end = start + 9
    if order == "shuffled":
        mixed = np.random.default_rng(0).permutation(len(start))
        start, end = start[mixed], end[mixed]

    assert length(union(start, end)) == 18_000_000
