"""Records that are written when something begins and completed when it ends."""

import pytest

from feedline.profiler.events import UNMEASURED, Stage
from feedline.profiler.store.segment import Segment, window_of
from feedline.profiler.store.segment_reader import read_segment
from feedline.profiler.taps.collectives.groups import _NAME_BYTES, _rank_runs, _shortened


@pytest.fixture
def segment(tmp_path):
    segment = Segment(tmp_path / "main.seg", {"role": "main"}, capacity_bytes=64 * 4096)
    yield segment
    segment.close()


def begin(segment, number=0, nbytes=0):
    return segment.add(Stage.COLLECTIVE, 1000, UNMEASURED, UNMEASURED, UNMEASURED, nbytes, number)


def walls(segment):
    return {
        int(record["number"]): int(record["wall"])
        for record in read_segment(segment.path).of(Stage.COLLECTIVE)
    }


def test_what_has_not_ended_is_there_without_an_end(segment):
    begin(segment, number=7)

    assert walls(segment) == {7: UNMEASURED}


def test_the_end_completes_the_record(segment):
    places = [begin(segment, number=number) for number in range(3)]
    segment.end(places[1], Stage.COLLECTIVE, 50)

    assert walls(segment) == {0: UNMEASURED, 1: 50, 2: UNMEASURED}


def test_totals_count_what_has_ended(segment):
    place = begin(segment, nbytes=40)
    segment.end(place, Stage.COLLECTIVE, 50, extra=20)

    assert read_segment(segment.path).totals[Stage.COLLECTIVE][:6].tolist() == [1, 50, 0, 0, 40, 20]


def test_an_end_after_windows_were_forgotten_goes_to_its_record(segment):
    windows = [window_of(0, batch) for batch in range(0, 64 * 400, 64)]
    kept = next(window for window in windows if window & 7 == 0)
    segment.window = kept
    place = begin(segment, number=1)
    for number, window in enumerate(windows):
        segment.window = window
        for _ in range(40):
            segment.add(Stage.NEXT, number, 1)
    assert read_segment(segment.path).stride > 1
    segment.end(place, Stage.COLLECTIVE, 50)

    assert walls(segment) == {1: 50}


def test_an_end_whose_window_was_forgotten_changes_no_other_record(segment):
    windows = [window_of(0, batch) for batch in range(0, 64 * 400, 64)]
    segment.window = next(window for window in windows if window & 1)
    place = begin(segment, number=1)
    for window in windows:
        segment.window = window
        for _ in range(40):
            segment.add(Stage.NEXT, 0, 1)
    segment.end(place, Stage.COLLECTIVE, 50)

    process = read_segment(segment.path)
    assert process.stride > 1
    assert walls(segment) == {}
    assert set(process.of(Stage.NEXT)["wall"].tolist()) == {1}


def test_many_collectives_keep_the_file_bounded(segment):
    for batch in range(0, 64 * 200):
        segment.window = window_of(0, batch)
        for number in range(3):
            segment.end(begin(segment, number=number), Stage.COLLECTIVE, 5)

    assert segment.path.stat().st_size <= 2 * 64 * 4096
    assert segment.stopped is None


def test_after_the_file_was_closed_an_end_is_nothing(tmp_path):
    segment = Segment(tmp_path / "closed.seg", {"role": "main"})
    place = begin(segment)
    segment.close()

    segment.end(place, Stage.COLLECTIVE, 50)


@pytest.mark.parametrize(
    "ranks", [(), (3,), (0, 1, 2, 3), (0, 8, 16), (0, 1, 2, 10, 20, 30), (5, 9)]
)
def test_ranks_cut_into_runs_are_the_same_ranks(ranks):
    assert [
        first + step * n for first, step, count in _rank_runs(ranks) for n in range(count)
    ] == list(ranks)


def test_long_names_stay_different_and_fit():
    first, second = ("group-" * 20 + end for end in "ab")

    assert _shortened("7") == "7"
    assert _shortened(first) != _shortened(second)
    assert max(len(_shortened(name).encode()) for name in (first, second, "ü" * 60)) <= _NAME_BYTES
