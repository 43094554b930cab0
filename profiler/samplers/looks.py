"""Looks at the threads that make batches, and finds out what a blocked one waits for.

How long a sample is blocked is measured exactly, thread by thread (profiler/clock.py). Looks from outside only say by what: a thread that
sleeps cannot tell. They begin FIRST_S apart and come half as often each time that ROUNDS of them were made.
"""

import threading

from feedline.profiler import clock
from feedline.profiler.events import Stage
from feedline.profiler.record.recorder import recorder
from feedline.profiler.samplers.source import OpenFile
from feedline.profiler.samplers.system_calls import waits_for

_FIRST_S = 0.025  # a run of two seconds has 80 looks; half of a share from 80 is known to 11 points (binomial, 95 %)
_ROUNDS = 200  # with a longer distance from then on: 5 s, 10 s, 20 s, ...; an hour has 2,000 rounds
_MOST = 8  # threads in one round, 15 us each; more take turns
_GOLDEN = 0.6180339887498949  # multiples of it modulo 1 are spread evenly, so that looks fall into step with nothing


class Looks:
    """What threads wait for, recorded as LOOK records.

    Attributes:
        due_ns: when the next round should be made, in ns of ``clock.wall_ns``.
    """

    def __init__(self) -> None:
        self.due_ns = 0
        self._lock = threading.Lock()
        self._threads: dict[int, tuple[int, OpenFile]] = {}  # thread -> its process, and where the kernel tells of it
        self._rounds = 0

    def watch(self, makers: list[tuple[int, int]]) -> None:
        """Also look at these threads, (process, thread) each, while they live. Can be called from any thread.

        Raises:
            OSError: one has ended, or the kernel does not tell.
        """
        new = {thread: (pid, OpenFile(f"/proc/{pid}/task/{thread}/syscall")) for pid, thread in makers}
        with self._lock:  # epochs may be shorter than the time between looks: those of earlier ones keep no descriptors
            self._threads = {thread: both for thread, both in self._threads.items() if _lives(both[1])} | new

    def look(self) -> None:
        """One round. Never raises."""
        with self._lock:
            threads = list(self._threads.items())
        period = _FIRST_S * 1e9 * 2 ** (self._rounds // _ROUNDS)
        self._rounds += bool(threads)
        self.due_ns = clock.wall_ns() + int(period * (0.5 + self._rounds * _GOLDEN % 1))
        begin = self._rounds * _MOST % max(len(threads), 1) if len(threads) > _MOST else 0
        for thread, (pid, file) in (threads + threads)[begin : begin + min(_MOST, len(threads))]:
            try:
                kind = waits_for(pid, file.read())
            except (OSError, ValueError, IndexError):  # it has ended
                with self._lock:
                    self._threads.pop(thread, None)
                continue
            segment = recorder.lasting()
            if kind is not None and segment is not None:
                stands_for = int(period * max(1, len(threads) / _MOST))
                segment.add(Stage.LOOK, clock.wall_ns(), 0, number=pid, extra=stands_for, source=segment.name_id(kind))


def _lives(file: OpenFile) -> bool:
    try:
        return bool(file.read())
    except OSError:
        return False
