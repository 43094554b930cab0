"""Measures the offset between this rank's clock and rank 0's, by a ping-pong through the process group's key-value store.

    rank r   t0 set ping ------> rank 0 wakes, stamps t ------> set pong -> rank r wakes, t3
             offset = t - (t0 + t3) / 2      error at most (t3 - t0) / 2      (RFC 5905, section 8, with one stamp for two)

Of 15 the one with the shortest round trip is kept: it waited least. A thread does it, over a connection of its own, so neither the training
nor its process groups are touched: at the start, now and then, and at the end. Rank 0's thread answers. A rank that is dead, or a store
that is gone, ends it. So does ``destroy_process_group``, without a last measurement: a rank that is held up there keeps the old store
alive, and others that create a new group meet in it and wait for that rank forever.
"""

import datetime
import hashlib
import itertools
import threading
import time
from typing import Any

import torch.distributed as dist

from feedline.profiler import clock, masks
from feedline.profiler.events import Stage
from feedline.profiler.fail_open import reraise_of_handler
from feedline.profiler.message import ReportHook
from feedline.profiler.record.recorder import recorder

_NAME, _GIVES = "clocks", "how the ranks' clocks differ"
_ROUND_TRIPS = 15
_FIRST_ROUND_S = 0.2  # after the group was made: one that lives for a moment only is left alone
_AGAIN_S = (2.0, 5.0, 10.0, 15.0)  # after each measurement; the last one from then on
_ANSWER_PATIENCE_S = 10.0  # rank 0 may be busy with hundreds of others
_LAST_PATIENCE_S = 0.3  # the program is ending
_LOOK_S = 0.05  # interval at which rank 0 checks for requests
_BLOCKED_S = 2.0  # longest that one operation of the store can take
_ENDS_S = 10.0  # for the operation that is going on; a machine may be busy
_WORD_S = 0.02  # what one word to the store may take
_PREFIX = "feedline/clock"
# of process groups in this process: a store can outlive one, and with it what was said in it
_lives = itertools.count()


class _ClockThread(threading.Thread):
    """One rank's part of the measurement.

    Args:
        store: a connection of its own.
        size: ranks in all.
        before: an earlier one has measured.
    """

    def __init__(
        self, store: Any, rank: int, size: int, report: ReportHook, before: bool = False
    ) -> None:
        super().__init__(name="feedline-clock", daemon=True)
        self._store, self._rank, self._size, self._report = store, rank, size, report
        self._ending = threading.Event()
        self._quitting = False
        self._before = before
        self.measured = 0

    def stop(self) -> None:
        """Measure a last time and stop.

        It takes a fraction of a second, or twice _BLOCKED_S if the store does not answer. It waits
        for the thread: one that comes back from the store while Python finalizes aborts the process
        (std::terminate).
        """
        self._ending.set()
        self.join(_BLOCKED_S + _LAST_PATIENCE_S)
        self._quitting = True
        self.join(_ENDS_S)

    def quit(self) -> None:
        """Stop without using the store again, which is about to close.

        torch reports cut connections on standard error.
        """
        self._quitting = True
        self._ending.set()
        self.join(_WORD_S)

    def run(self) -> None:
        problem = ""
        try:
            self._answer() if self._rank == 0 else self._ask()
        except Exception as error:  # the store is gone with rank 0, or with its host
            reraise_of_handler()
            problem = f"{_GIVES}, until {masks.error(error)[:160]}"
        if self._rank and not self.measured and not self._before:
            self._report(_NAME, False, problem or "rank 0 did not answer")

    def _answer(self) -> None:
        _note(0, 0)
        served, until = 0, 0.0
        while not self._quitting:
            wanted = self._store.add("wanted", 0)
            while served < wanted:
                served += 1
                self._pong(served)
            if self._ending.is_set():
                until = until or time.monotonic() + _LAST_PATIENCE_S
                if self._store.add("left", 0) >= self._size - 1 or time.monotonic() > until:
                    self._store.set("closed", "")
                    return
                time.sleep(0.005)
            else:
                self._ending.wait(_LOOK_S)

    def _pong(self, ticket: int) -> None:
        if self._store.check([f"{ticket}/gone"]):
            return
        self._store.set(f"{ticket}/here", "")
        for number in range(_ROUND_TRIPS):
            if self._quitting:
                return
            ping = f"{ticket}/ping{number}"
            self._store.wait([ping])
            self._store.set(f"{ticket}/pong{number}", str(clock.wall_ns()))
            self._store.delete_key(ping)
        self._store.delete_key(f"{ticket}/here")

    def _ask(self) -> None:
        again = iter(_AGAIN_S)
        wait = _FIRST_ROUND_S
        while not self._ending.wait(wait):
            self._measure(_ANSWER_PATIENCE_S)
            wait = next(again, _AGAIN_S[-1])
        if self._quitting:
            return
        if not self._store.check(["closed"]):
            self._measure(_LAST_PATIENCE_S)
        self._store.add("left", 1)

    def _measure(self, patience_s: float) -> None:
        store = self._store
        ticket = store.add("wanted", 1)
        until = time.monotonic() + patience_s
        while not store.check([f"{ticket}/here"]):
            if self._quitting:
                return
            if time.monotonic() > until or self._ending.is_set() and patience_s > _LAST_PATIENCE_S:
                store.set(f"{ticket}/gone", "")
                return
            time.sleep(0.005)
        best: tuple[int, int] | None = None
        for number in range(_ROUND_TRIPS):
            if self._quitting:
                return
            pong = f"{ticket}/pong{number}"
            begun = clock.wall_ns()
            store.set(f"{ticket}/ping{number}", "")
            store.wait([pong])
            ended = clock.wall_ns()
            theirs = int(store.get(pong))
            store.delete_key(pong)
            if best is None or ended - begun < best[0]:
                best = ended - begun, theirs - (begun + ended) // 2
        if best is not None:
            _note(best[1], best[0])
            self.measured += 1


def _note(offset: int, round_trip: int) -> None:
    """Record one measurement: rank 0's clock minus this one, and the round trip, ns."""
    segment = recorder.main
    if segment is not None:
        segment.add(
            Stage.CLOCK,
            clock.wall_ns(),
            0,
            number=offset,
            extra=round_trip,
            source=segment.name_id(_host()),
        )


def _host() -> str:
    """Return an id shared by all processes on one running kernel, which reveals nothing about it."""
    try:
        with open("/proc/sys/kernel/random/boot_id", "rb") as file:
            return "host-" + hashlib.sha256(file.read()).hexdigest()[:8]
    except OSError:
        return "host"


def start_clock(report: ReportHook, before: bool) -> _ClockThread | None:
    """Measure from now on; None if there is nothing to measure.

    Args:
        report: called with the reason where that is impossible.
        before: it was measured for an earlier process group.
    """
    rank, size = dist.get_rank(), dist.get_world_size()
    if size < 2:
        _note(0, 0)
        return None
    try:
        shared = dist.distributed_c10d._get_default_store()
        own = shared.clone()  # type: ignore[attr-defined]
        store = dist.PrefixStore(f"{_PREFIX}/{next(_lives)}", own)
        store.set_timeout(datetime.timedelta(seconds=_BLOCKED_S))
    except Exception as error:
        reraise_of_handler()
        report(
            _NAME,
            False,
            f"cannot open a separate connection to the process group's store, {masks.error(error)}",
        )
        return None
    thread = _ClockThread(store, rank, size, report, before)
    thread.start()
    return thread
