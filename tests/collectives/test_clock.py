"""The ping-pong between two threads of this process, over a real store on localhost."""

import datetime
import threading
import time

import pytest
import torch.distributed as dist

from feedline.profiler import clock
from feedline.profiler.events import Stage
from feedline.profiler.record.recorder import recorder
from feedline.profiler.store.segment import Segment
from feedline.profiler.store.segment_reader import read_segment
from feedline.profiler.taps.collectives import rank_clocks
from feedline.profiler.taps.collectives.rank_clocks import _ClockThread

AHEAD_NS = 5_000_000_000


@pytest.fixture
def segment(tmp_path):
    segment = Segment(tmp_path / "main.seg", {"role": "main"})
    recorder.open_main(segment)
    yield segment
    recorder.close()


@pytest.fixture
def server():
    return dist.TCPStore("localhost", 0, None, True, wait_for_workers=False)


@pytest.fixture
def told():
    return []


def connection(server):
    store = dist.TCPStore("localhost", server.port, None, False, wait_for_workers=False)
    store.set_timeout(datetime.timedelta(seconds=2))
    return dist.PrefixStore("clock", store)


def rank(number, server, told):
    return _ClockThread(connection(server), number, 2, lambda *said: told.append(said))


def notes(segment):
    records = read_segment(segment.path).of(Stage.CLOCK)
    return records[records["extra"] > 0]


def until(true, seconds=5.0):
    end = time.monotonic() + seconds
    while not true() and time.monotonic() < end:
        time.sleep(0.01)
    return true()


def test_a_clock_that_is_five_seconds_ahead_is_measured_within_its_bound(
    segment, server, told, monkeypatch
):
    real = clock.wall_ns
    second = rank(1, server, told)
    monkeypatch.setattr(
        clock, "wall_ns", lambda: real() + (AHEAD_NS if threading.current_thread() is second else 0)
    )
    first = rank(0, server, told)
    first.start()
    second.start()
    assert until(lambda: second.measured)
    for thread in (second, first):
        thread.stop()

    for note in notes(segment):
        assert abs(int(note["number"]) + AHEAD_NS) <= note["extra"] / 2


def test_it_is_measured_at_the_start_and_at_the_end(segment, server, told):
    threads = [rank(number, server, told) for number in (0, 1)]
    for thread in threads:
        thread.start()
    assert until(lambda: threads[1].measured == 1)
    for thread in reversed(threads):
        thread.stop()

    assert len(notes(segment)) == 2
    assert not any(thread.is_alive() for thread in threads)


def test_it_is_measured_again_and_again(segment, server, told, monkeypatch):
    monkeypatch.setattr(rank_clocks, "_AGAIN_S", (0.01,))
    threads = [rank(number, server, told) for number in (0, 1)]
    for thread in threads:
        thread.start()
    assert until(lambda: threads[1].measured >= 5)
    for thread in threads:
        thread.stop()

    assert until(lambda: server.num_keys() < 10)  # what was said is taken away again


def test_without_rank_0_it_ends_all_the_same_and_says_so(segment, server, told):
    alone = rank(1, server, told)
    alone.start()
    time.sleep(0.1)
    begun = time.monotonic()
    alone.stop()

    assert time.monotonic() - begun < 2.5
    assert not alone.is_alive()
    assert told == [("clocks", False, "rank 0 did not answer")]


class Slow:
    """A connection to a store on a machine that is very busy."""

    def __init__(self, store):
        self._store = store

    def __getattr__(self, name):
        def operation(*args):
            time.sleep(0.1)
            return getattr(self._store, name)(*args)

        return operation


@pytest.mark.long
def test_a_store_that_is_slow_does_not_keep_the_thread_past_its_end(segment, server, told):
    """A thread that comes back from the store while Python finalizes aborts the process."""
    first = rank(0, server, told)
    second = _ClockThread(Slow(connection(server)), 1, 2, lambda *said: told.append(said))
    for thread in (first, second):
        thread.start()
    assert until(lambda: server.num_keys() > 2)  # a measurement is under way: it would take 6 s
    second.stop()

    assert not second.is_alive()
    first.quit()
    first.join(5)


def test_a_store_that_is_gone_ends_the_thread(segment, told):
    server = dist.TCPStore("localhost", 0, None, True, wait_for_workers=False)
    first = rank(0, server, told)
    first.start()
    time.sleep(0.1)
    del server

    first.join(5)
    assert not first.is_alive()
