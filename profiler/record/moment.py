"""Wall, CPU and run-queue time between two moments of one thread, cheap enough for both ends of every span.

Reading a thread's run-queue delay is a system call: 2 us, and 20 where the work has just pushed it out of the caches. But a thread whose
CPU clock kept pace with the wall clock has not been waiting for a CPU. So the delay is read only where the two have parted by SLACK_NS
since the last reading; less than that is called no delay.
"""

import threading

from feedline.profiler import clock
from feedline.profiler.events import UNMEASURED

SLACK_NS = 20_000

#: (start, CPU time, run-queue delay) of the thread so far, ns; the last UNMEASURED where the kernel does not tell.
Moment = tuple[int, int, int]


class _Known(threading.local):
    """The clocks of this thread when its run-queue delay was last read."""

    said = -(1 << 62), UNMEASURED  # wall less CPU, ns, so small that the first moment reads; the delay


known = _Known()


def now() -> Moment:
    """The beginning of a span."""
    cpu = clock.cpu_ns()
    wall = clock.wall_ns()
    lost, delay = known.said
    if not -SLACK_NS < wall - cpu - lost < SLACK_NS:  # negative: the CPU clock of a forked child restarts
        delay = _read(wall - cpu)
    return wall, cpu, delay


def wall() -> Moment:
    """The beginning of a span that needs only wall time; skips both readings of the CPU clock."""
    return clock.wall_ns(), UNMEASURED, UNMEASURED


def since(begun: Moment) -> tuple[int, int, int]:
    """(wall, CPU, run-queue) nanoseconds from ``begun`` until now. Run-queue time is limited to the time without a CPU."""
    wall = clock.wall_ns()
    start, cpu_before, delay_before = begun
    if cpu_before < 0:
        return wall - start, UNMEASURED, UNMEASURED
    cpu = clock.cpu_ns()
    lost, delay = known.said
    if not -SLACK_NS < wall - cpu - lost < SLACK_NS:
        delay = _read(wall - cpu)
    wall -= start
    cpu -= cpu_before
    if delay < 0 or delay_before < 0:
        return wall, cpu, UNMEASURED
    return wall, cpu, 0 if delay == delay_before else max(0, min(delay - delay_before, wall - cpu))


def _read(lost: int) -> int:
    delay = clock.counters.runqueue_ns()
    known.said = lost, delay
    return delay
