"""CPU time of this process and all of its descendants."""

import os
import resource
import time

from feedline.profiler.samplers.processes import descendants


def tree_cpu_s() -> float:
    """CPU seconds so far of this process, of its live descendants, and of children that ended and were waited for."""
    ended = resource.getrusage(resource.RUSAGE_CHILDREN)
    return time.process_time() + ended.ru_utime + ended.ru_stime + sum(map(_process_cpu_s, descendants(os.getpid())))


def _process_cpu_s(pid: int) -> float:
    """Of all threads of a process, those that ended too, in nanoseconds' resolution (/proc/PID/stat counts in hundredths of a second)."""
    try:
        return time.clock_gettime(~pid << 3 | 2)  # clock_getcpuclockid(3): MAKE_PROCESS_CPUCLOCK(pid, CPUCLOCK_SCHED)
    except OSError:  # it ended meanwhile
        return 0.0
