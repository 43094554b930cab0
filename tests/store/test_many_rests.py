"""A training of very many short epochs, each with a rest that is kept for good, stays recorded."""

import numpy as np
import pytest

from feedline.profiler.events import RECORD, Stage
from feedline.profiler.store.segment import Segment, window_of
from feedline.profiler.store.segment_reader import read_segment
from feedline.profiler.store.thinning import _merge_rests

MAIN = {"role": "main"}
LOADERS = 3, 7


@pytest.fixture
def path(tmp_path):
    return tmp_path / "segments" / "main.seg"


def write_epoch(segment, epoch, steps=8):
    """Write an epoch: some steps, then a rest of 40 steps that the next epoch ends."""
    at = epoch * 1000
    segment.window = window_of(epoch, 0)
    segment.add(Stage.EPOCH, at, 5, number=epoch)
    for step in range(steps):
        segment.add(Stage.OPTIMIZER, at + 10 + step, 1, number=step)
    rest = segment.add_for_good(Stage.REST, at + 100, 0, cpu=epoch)
    taken = [segment.add_for_good(Stage.TAKEN, at + 100, 0, source=loader) for loader in LOADERS]
    segment.end(rest, Stage.REST, 800, 40)
    for place, loader in zip(taken, LOADERS):
        segment.end(place, Stage.TAKEN, 40, 40 * loader)
    segment.add_for_good(Stage.WOKEN, at + 950, 0)


def test_more_rests_than_there_is_room_for_are_merged_and_lose_nothing(path):
    epochs, capacity = 3000, 4096 * RECORD.size
    segment = Segment(path, MAIN, capacity)
    for epoch in range(epochs):
        write_epoch(segment, epoch)

    assert segment.stopped is None
    process = read_segment(path)
    rests, taken = process.of(Stage.REST), process.of(Stage.TAKEN)
    assert len(rests) < epochs / 2
    assert (rests["wall"].sum(), rests["extra"].sum()) == (800 * epochs, 40 * epochs)
    assert rests["cpu"].max() == epochs - 1
    for loader in LOADERS:
        own = taken[taken["source"] == loader]
        assert (own["wall"].sum(), own["extra"].sum()) == (40 * epochs, 40 * loader * epochs)
    assert process.totals[Stage.EPOCH][0] == epochs
    assert process.totals[Stage.OPTIMIZER][0] == 8 * epochs
    segment.close()


def test_what_lies_between_recorded_steps_begins_and_ends_where_it_did(path):
    epochs = 3000
    segment = Segment(path, MAIN, 4096 * RECORD.size)
    for epoch in range(epochs):
        write_epoch(segment, epoch)

    process = read_segment(path)
    steps, rests = np.sort(process.of(Stage.OPTIMIZER)["start"]), process.of(Stage.REST)
    begun, ended = np.sort(rests["start"]), np.sort(rests["start"] + rests["wall"])
    assert (begun[1:] >= ended[:-1]).all()
    recorded = np.unique(steps // 1000)
    assert len(recorded) > 4
    for epoch in recorded.tolist():
        assert epoch * 1000 + 100 in begun
        assert not epoch or (epoch - 1) * 1000 + 900 in ended
    segment.close()


def test_a_segment_of_records_that_cannot_be_merged_says_so(path):
    segment = Segment(path, MAIN, 2048 * RECORD.size)
    for number in range(6000):
        segment.add_for_good(Stage.EPOCH, number, 1)

    assert "full of records that must be kept" in segment.stopped


def test_rests_that_are_being_written_and_trainings_of_their_own_are_left_alone(path):
    segment = Segment(path, MAIN)
    for epoch in range(9):
        write_epoch(segment, epoch, steps=0)
        if epoch == 3:
            segment.add(Stage.BEGUN, 3999, 0)
    records = read_segment(path).records

    merged = _merge_rests(records, np.ones(len(records), bool))

    left = records[~merged.gone & (records["stage"] == Stage.REST)]["start"]
    assert left.tolist() == [100, 3100, 4100, 6100, 7100, 8100]
    at, extra = merged.rows["start"].tolist(), merged.rows["extra"].tolist()
    assert at[:2] == [3100 - 2 * 800, 6100 - 800] and extra[:2] == [120, 80]
    segment.close()
