"""The calling thread's run-queue delay so far, asked for again only after a while: spans begin and end close together."""

import threading

from feedline.profiler import clock

FRESH_NS = 30_000  # the delay in a gap is no longer than the gap; asking takes 2 to 5 us


class Last(threading.local):
    at = -FRESH_NS
    delay = 0


last = Last()


def delay_ns(now: int) -> int:
    """Nanoseconds that this thread has been runnable but not running, at most FRESH_NS old, or UNMEASURED.

    Args:
        now: a reading of the wall clock just taken.
    """
    if now - last.at > FRESH_NS:
        last.delay = clock.counters.runqueue_ns()
        last.at = now
    return last.delay
