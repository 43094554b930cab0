"""Traces with very many threads, or with devices that no machine has."""

import time

import numpy as np
import pytest

from feedline.analysis.traces import folder
from feedline.analysis.traces.rank_trace import summarise
from feedline.analysis.traces.trace_columns import EVENT_DTYPE, Kind, Trace, Track
from feedline.profiler.errors import RunDamaged


def trace(events: int, tracks: int, device: bool = False) -> Trace:
    """Operators one after the other, each on the next track."""
    made = np.zeros(events, EVENT_DTYPE)
    made["start"], made["wall"] = np.arange(events) * 1000, 900
    made["correlation"] = made["nbytes"] = made["shape"] = made["collective"] = -1
    made["track"] = np.arange(events) % tracks
    made["kind"] = np.where(np.arange(events) % 3 == 0, Kind.RUNTIME, Kind.OPERATOR)
    places = [Track("1", str(number), number if device else -1) for number in range(tracks)]
    return Trace("a.json", "kineto", 0, 1, 0, made, ["aten::mm"], places)


def test_a_thread_for_each_event_takes_no_longer_than_one_for_all():
    def took(tracks: int) -> float:
        made, begun = trace(100_000, tracks), time.process_time()
        summarise(made)
        return time.process_time() - begun

    assert took(100_000) < 5 * took(1) + 1  # it was a thousand times as long


def test_what_threads_called_does_not_depend_on_their_number():
    one, many = (summarise(trace(3000, tracks)).calls for tracks in (1, 3000))

    assert [(row.name, row.count, row.total_ns, row.own_ns) for row in one] == [
        (row.name, row.count, row.total_ns, row.own_ns) for row in many
    ]


def test_more_devices_than_any_machine_has_are_refused_with_their_number(tmp_path):
    folder.write(trace(5000, 5000, device=True), tmp_path / "rank0")

    with pytest.raises(RunDamaged, match="5,000 devices"):
        folder.read(tmp_path / "rank0")
