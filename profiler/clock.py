"""The clocks of a record, and the counters that tell CPU, waiting for a CPU and being blocked apart.

wall  perf_counter_ns: CLOCK_MONOTONIC, the same for all processes of a host.
cpu   thread_time_ns: CLOCK_THREAD_CPUTIME_ID.
runqueue  /proc/thread-self/schedstat, field 2: runnable, but another task had the CPU.
blocked   what remains of wall: disk, network, lock or sleep.

Tests put a fake in place of ``wall_ns``; everything that stamps looks it up here at attach time.
"""

import os
import resource
import threading
import time
from typing import NamedTuple

from feedline.profiler import masks
from feedline.profiler.descriptor import Descriptor
from feedline.profiler.events import UNMEASURED

#: Begins the name of an annotation in a trace of torch.profiler; ``wall_ns``, read just before it, follows (taps/clock_marks.py).
MARK = "feedline:clock:"

wall_ns = time.perf_counter_ns
cpu_ns = time.thread_time_ns
_monotonic_ns, _calendar_ns = time.perf_counter_ns, time.time_ns  # programs that freeze time replace them in the module


class Traffic(NamedTuple):
    """Cumulative file traffic of the calling thread."""

    chars: int  # bytes that read() returned, from the page cache or not
    calls: int  # read calls
    disk: int  # bytes that had to come from the disk
    major_faults: int  # page faults that had to read (mmap)


class ThreadCounters:
    """Reads the calling thread's /proc counters through file descriptors opened once per thread.

    A kernel or container that does not offer them gives UNMEASURED; ``absent`` then says which and why.
    """

    def __init__(self) -> None:
        self._local = threading.local()
        self.absent: dict[str, str] = {}

    def runqueue_ns(self) -> int:
        """Nanoseconds that the calling thread has been runnable but not running, or UNMEASURED."""
        try:
            return int(os.pread(self._local.schedstat, 64, 0).split()[1])
        except AttributeError:
            if self._open("schedstat"):
                return self.runqueue_ns()
        except (OSError, IndexError, ValueError, TypeError):
            pass
        return UNMEASURED

    def traffic(self) -> Traffic | None:
        """File traffic of the calling thread so far, or None where /proc does not tell."""
        try:
            fields = os.pread(self._local.io, 256, 0).split()
            faults = resource.getrusage(resource.RUSAGE_THREAD).ru_majflt
            return Traffic(int(fields[1]), int(fields[5]), int(fields[9]), faults)
        except AttributeError:
            if self._open("io"):
                return self.traffic()
        except (OSError, IndexError, ValueError, TypeError):
            pass
        return None

    def _open(self, name: str) -> bool:
        path = f"/proc/thread-self/{name}"
        try:
            number = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
            setattr(self._local, f"{name}_file", Descriptor(number, closes=True))  # with the thread
            setattr(self._local, name, number)
            return True
        except OSError as error:
            self.absent[path] = masks.error(error)
            setattr(self._local, name, None)
            return False


counters = ThreadCounters()


def anchor() -> dict[str, int]:
    """One pair of (monotonic, wall-clock) readings, to put a run's times on the calendar."""
    return {"perf_counter_ns": _monotonic_ns(), "time_ns": _calendar_ns()}
