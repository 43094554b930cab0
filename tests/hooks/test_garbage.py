"""Garbage collections of this process, and graphs that are kept, in real ones."""

import gc
import threading
from types import SimpleNamespace

import pytest
import torch

from feedline.profiler.events import Stage
from feedline.profiler.record.recorder import recorder
from feedline.profiler.store.segment import Segment
from feedline.profiler.store.segment_reader import read_segment
from feedline.profiler.taps.garbage import _MOST_WAITING, GarbageTap
from feedline.profiler.taps.graphs import GraphTap
from feedline.profiler.taps.patch import Patches

OBJECTS = 300_000  # that a full collection looks at for more than a millisecond


@pytest.fixture
def segment(tmp_path):
    segment = Segment(tmp_path / "main.seg", {"role": "main"})
    recorder.open_main(segment)
    segment.add(Stage.FORWARD, 1, 1)  # it trains
    yield segment
    recorder.close()


@pytest.fixture
def tap(segment):
    before, tap = list(gc.callbacks), GarbageTap()
    tap.attach(Patches())
    yield tap
    tap.undo()
    assert gc.callbacks == before


def seen(segment):
    return read_segment(segment.path).view(Stage.GARBAGE)


def test_a_call_of_gc_collect_is_recorded_with_its_line(tap, segment):
    heap = [[number] for number in range(OBJECTS)]
    gc.collect()
    process = read_segment(segment.path)
    called = process.view(Stage.GARBAGE)
    called = called[called["called"] == 1]

    assert len(called) and called["generation"].tolist() == [2] * len(called)
    assert process.names[int(called["source"][0])].partition(":")[0].endswith("test_garbage.py")
    assert len(heap) == OBJECTS


def test_a_collection_by_python_is_none_that_was_called(tap, segment):
    heap = [[number] for number in range(3 * OBJECTS)]
    records = seen(segment)

    assert records["wall"].sum() > 0 and not records["called"].any()
    assert len(heap) == 3 * OBJECTS


def test_short_collections_are_added_up(tap, segment):
    for _ in range(200):
        gc.collect(0)
    tap.undo()
    records = seen(segment)
    records = records[records["collections"] > 0]

    assert records["collections"].sum() >= 200
    assert len(records) < 200


def test_a_collection_beside_a_thread_that_writes_waits_for_nothing(tap, segment):
    """A signal's handler may have interrupted that one, and wait for the collection."""
    heap = [[number] for number in range(OBJECTS)]
    gc.collect()
    before = len(seen(segment))
    thread = threading.Thread(target=gc.collect)
    waited = []
    segment._waited = lambda: waited.append(1) or False
    with segment._lock:
        thread.start()
        thread.join(4)
        assert not thread.is_alive()
    assert (waited, len(seen(segment))) == ([], before)

    gc.collect()
    called = seen(segment)[before:]["called"]
    assert called.tolist().count(1) == 2
    assert len(heap) == OBJECTS


def test_collections_stay_disabled_in_a_program_that_disabled_them(tap):
    enabled = gc.isenabled()
    gc.disable()
    try:
        gc.collect()
        assert not gc.isenabled()
    finally:
        if enabled:
            gc.enable()


def test_what_was_frozen_is_counted_at_the_end(tap, segment, monkeypatch):
    monkeypatch.setattr(gc, "get_freeze_count", gc.get_freeze_count.__wrapped__)
    gc.freeze()
    try:
        tap.undo()
    finally:
        gc.unfreeze()
    last = seen(segment)[-1]

    assert last["collections"] == 0 and last["collected"] > 1000


class Updates:
    """As much of a convergence tap as the tap of graphs asks for."""

    updates = 0


@pytest.fixture
def graphs(segment, monkeypatch):
    monkeypatch.setattr(recorder, "convergence", Updates())
    tap = GraphTap()
    tap.attach(Patches())
    yield tap
    tap.stop()
    assert recorder.graphs is None


def trained(keep, steps=40):
    """A loop that keeps a metric of each step."""
    model, kept = torch.nn.Linear(8, 4), 0.0
    for step in range(steps):
        recorder.convergence.updates = step
        output = model(torch.randn(2, 8))
        recorder.graphs.forwarded(output, 0)
        loss = output.square().mean()
        loss.backward(retain_graph=True)
        kept = keep(kept, output.softmax(1).mean())
    return kept


def test_graphs_of_a_metric_that_is_summed_are_all_alive(graphs, segment):
    trained(lambda kept, metric: kept + metric)
    last = read_segment(segment.path).view(Stage.KEPT)[-1]

    assert last["graphs"] > 10 and last["alive"] == last["graphs"]


def test_graphs_of_a_metric_that_is_detached_are_gone(graphs, segment):
    trained(lambda kept, metric: kept + metric.detach())
    last = read_segment(segment.path).view(Stage.KEPT)[-1]

    assert last["graphs"] > 10 and last["alive"] == 0


def test_a_program_that_does_nothing_else_has_no_record_of_them(tmp_path):
    segment, tap = Segment(tmp_path / "main.seg", {"role": "main"}), GarbageTap()
    recorder.open_main(segment)
    tap.attach(Patches())
    gc.collect()
    tap.undo()
    recorder.close()

    assert not len(read_segment(segment.path).view(Stage.GARBAGE))


def test_what_waits_for_the_first_record_stays_short(tap, monkeypatch):
    """A program may prepare its data for hours, in Python objects, before anything is recorded."""
    monkeypatch.setattr(recorder, "always_on_segment", lambda: SimpleNamespace(is_empty=True))
    for number in range(1000):
        tap._write(number, 1, 0, 2, 1)

    assert len(tap._waiting) == _MOST_WAITING and tap._waiting[-1][0] == 999
