"""Nested spans become disjoint pieces, and nothing is lost or counted twice."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from feedline.analysis.intervals import Pieces, cut, flatten, overlap, parents

intervals = st.lists(st.tuples(st.integers(0, 60), st.integers(0, 30)), max_size=12)


@st.composite
def nested(draw: st.DrawFn) -> list[tuple[int, int]]:
    """Spans (start, length) of a call tree."""
    spans: list[tuple[int, int]] = []

    def fill(begin: int, end: int, depth: int) -> None:
        now = begin
        while depth and now < end and draw(st.booleans()):
            start = draw(st.integers(now, end - 1))
            stop = draw(st.integers(start + 1, end))
            spans.append((start, stop - start))
            fill(start, stop, depth - 1)
            now = stop

    fill(0, 40, 3)
    return draw(st.permutations(spans))


def arrays(spans):
    return (np.array([span[i] for span in spans], np.int64) for i in (0, 1))


def union(spans):
    return {tick for start, wall in spans for tick in range(start, start + wall)}


@given(nested())
def test_pieces_cover_exactly_what_the_spans_cover(spans):
    start, wall = arrays(spans)
    pieces = flatten(start, wall)

    ticks = [tick for begin, end in zip(pieces.start, pieces.end) for tick in range(begin, end)]
    assert len(ticks) == len(set(ticks))
    assert set(ticks) == union(spans)


@given(nested())
def test_a_piece_belongs_to_the_shortest_span_around_it(spans):
    start, wall = arrays(spans)
    pieces = flatten(start, wall)

    for begin, end, owner in zip(pieces.start, pieces.end, pieces.owner):
        around = [w for s, w in spans if s <= begin and end <= s + w]
        assert spans[owner][1] == min(around)


@given(nested(), st.lists(st.integers(0, 40), max_size=5))
def test_cutting_changes_no_owner_and_no_time(spans, times):
    pieces = flatten(*arrays(spans))
    at = np.unique(np.array(times, np.int64))
    after = cut(pieces, at)

    assert (after.end > after.start).all()
    assert not any(((after.start < time) & (time < after.end)).any() for time in at)
    for owner in set(pieces.owner.tolist()):
        assert (pieces.end - pieces.start)[pieces.owner == owner].sum() == (
            after.end - after.start
        )[after.owner == owner].sum()


@given(nested())
def test_self_times_sum_to_the_outermost_spans(spans):
    start, wall = arrays(spans)
    above = parents(start, wall)
    own = (
        wall - np.bincount(above[above >= 0], wall[above >= 0], len(spans)) if len(spans) else wall
    )

    assert (own >= 0).all()
    assert own.sum() == wall[above < 0].sum()


@given(intervals, nested())
def test_overlap_counts_ticks(asked, spans):
    pieces = flatten(*arrays(spans))
    start, length = arrays(asked)

    found = overlap(start, start + length, pieces.start, pieces.end)

    covered = union(spans)
    assert found.tolist() == [len(covered & set(range(s, s + w))) for s, w in asked]


def test_a_span_that_outlasts_its_parent_is_cut():
    pieces = flatten(np.array([0, 5]), np.array([10, 7]))

    assert list(zip(*(column.tolist() for column in (pieces.start, pieces.end, pieces.owner)))) == [
        (0, 5, 0),
        (5, 10, 1),
    ]
    assert isinstance(pieces, Pieces)
