"""Wall, CPU and run-queue time between two moments, on clocks that the test sets."""

import pytest

from feedline.profiler import clock
from feedline.profiler.clock import _SLACK_NS
from feedline.profiler.events import UNMEASURED


class Thread:
    """A thread that works, waits for a CPU, and sleeps."""

    def __init__(self) -> None:
        self.wall, self.cpu, self.delay = 10**12, 5 * 10**9, 10**8
        self.readings = 0

    def read(self) -> int:
        self.readings += 1
        return self.delay

    def work(self, ns: int) -> None:
        self.wall += ns
        self.cpu += ns

    def wait(self, ns: int) -> None:
        self.wall += ns
        self.delay += ns

    def sleep(self, ns: int) -> None:
        self.wall += ns


@pytest.fixture
def thread(monkeypatch):
    made = Thread()
    monkeypatch.setattr(clock, "wall_ns", lambda: made.wall)
    monkeypatch.setattr(clock, "cpu_ns", lambda: made.cpu)
    monkeypatch.setattr(clock.counters, "runqueue_ns", made.read)
    monkeypatch.setattr(clock, "_known", clock._Known())
    return made


def test_working_waiting_for_a_cpu_and_sleeping_are_told_apart(thread):
    begun = clock.now()
    thread.work(1_000_000)
    thread.wait(200_000)
    thread.sleep(3_000_000)

    assert clock.since(begun) == (4_200_000, 1_000_000, 200_000)


def test_a_thread_that_works_is_asked_for_its_delay_once(thread):
    for _ in range(10):
        begun = clock.now()
        thread.work(1_000_000)

        assert clock.since(begun) == (1_000_000, 1_000_000, 0)

    assert thread.readings == 1


def test_what_was_waited_before_a_span_is_not_the_spans(thread):
    clock.now()
    thread.wait(500_000)
    begun = clock.now()
    thread.work(1_000_000)
    thread.sleep(400_000)

    assert clock.since(begun) == (1_400_000, 1_000_000, 0)


def test_the_delay_of_an_inner_span_is_in_the_outer_one_too(thread):
    outer = clock.now()
    inner = clock.now()
    thread.wait(300_000)
    assert clock.since(inner)[2] == 300_000
    thread.work(1_000_000)

    assert clock.since(outer)[2] == 300_000


def test_delays_too_short_to_be_read_add_up_until_they_are(thread):
    delays = []
    for _ in range(8):
        begun = clock.now()
        thread.wait(_SLACK_NS // 2)
        delays.append(clock.since(begun)[2])

    assert 0 in delays
    assert thread.readings == 5


def test_no_span_waited_longer_than_it_was_without_a_cpu(thread):
    begun = clock.now()
    thread.sleep(50_000)
    thread.delay += 80_000  # the kernel accounts some of it later

    assert clock.since(begun)[2] == 50_000


def test_a_forked_child_whose_cpu_clock_begins_anew_is_asked_again(thread):
    clock.now()
    thread.cpu = 0
    thread.delay = 7
    begun = clock.now()
    thread.wait(100_000)

    assert clock.since(begun)[2] == 100_000


def test_where_the_kernel_tells_no_delay_it_is_unmeasured(thread, monkeypatch):
    monkeypatch.setattr(clock.counters, "runqueue_ns", lambda: UNMEASURED)
    begun = clock.now()
    thread.work(1_000_000)

    assert clock.since(begun) == (1_000_000, 1_000_000, UNMEASURED)
