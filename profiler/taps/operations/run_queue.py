"""The calling thread's run-queue delay, within a sample that is looked at.

A reading is a system call: 2 us, and 20 where the sample has just pushed it out of the caches. So it is taken only at the end of a span
that lost time without using a CPU; where none was lost, there is nothing that could have been waiting.
"""

import threading

from feedline.profiler import clock
from feedline.profiler.events import UNMEASURED


class Last(threading.local):
    delay = UNMEASURED  # ns, as this thread was told last; a span keeps it as it begins


last = Last()


def begin() -> None:
    """A sample begins in this thread: what it waited before is not the sample's."""
    last.delay = clock.counters.runqueue_ns()


def delay_ns(known: int, without_cpu: int) -> int:
    """Nanoseconds of a span that ends now in which its thread was runnable but not running, or UNMEASURED.

    A delay between two spans counts for the second one if that one lost as much.

    Args:
        known: ``last.delay`` when the span began.
        without_cpu: ns, its wall time less its CPU time.
    """
    if known < 0:
        return UNMEASURED
    if without_cpu <= 0:
        return 0
    last.delay = clock.counters.runqueue_ns()
    return min(last.delay - known, without_cpu)
