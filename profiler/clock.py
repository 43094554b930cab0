"""Clocks of a record, and the counters that separate CPU time, waiting for a CPU, and blocked time.

wall  perf_counter_ns: CLOCK_MONOTONIC, the same for all processes of a host.
cpu   thread_time_ns: CLOCK_THREAD_CPUTIME_ID.
runqueue  /proc/thread-self/schedstat, field 2: runnable, but another task had the CPU.
blocked   what remains of wall: disk, network, lock or sleep.

``now`` and ``since`` are cheap enough for both ends of every span. Reading a thread's run-queue delay is a system call: 2 us, and 20 where
the work has just pushed it out of the caches. But a thread whose CPU clock kept pace with the wall clock has not been waiting for a CPU. So
the delay is read only where the two have parted by _SLACK_NS since the last reading; less than that is called no delay.

Tests put a fake in place of ``wall_ns``; everything that stamps looks it up here at attach time.
"""

import os
import resource
import threading
import time
from typing import NamedTuple

from feedline.profiler import masks
from feedline.profiler.events import UNMEASURED
from feedline.profiler.files.descriptor import Descriptor

#: Begins the name of an annotation in a trace of torch.profiler; ``wall_ns``, read just before it,
#: follows (taps/kineto_window.py).
MARK = "feedline:clock:"

wall_ns = time.perf_counter_ns
cpu_ns = time.thread_time_ns
# programs that freeze time replace them in the module
_monotonic_ns, _calendar_ns = (time.perf_counter_ns, time.time_ns)


class FileTraffic(NamedTuple):
    """Cumulative file traffic of the calling thread, as counted by the kernel."""

    chars: int  # bytes that read() returned, from the page cache or not
    calls: int  # read calls
    disk: int  # bytes that had to come from the disk
    major_faults: int  # page faults that had to read (mmap)
    minor_faults: (
        int  # page faults that only had to map a page: new memory, or a file's page in the cache
    )
    system_ns: int  # CPU time in the kernel


class _Own(threading.local):
    """Bytes that this thread has read from /proc for feedline.

    The kernel counts them as its file traffic.
    """

    chars = calls = 0


class _ThreadCounters:
    """Reads the calling thread's /proc counters through file descriptors opened once per thread.

    A kernel or container that does not offer them gives UNMEASURED; ``absent`` then says which and
    why.
    """

    def __init__(self) -> None:
        self.forget_after_fork()
        self.absent: dict[str, str] = {}

    def forget_after_fork(self) -> None:
        """Drop the descriptors in the child of a fork: they belong to the parent's thread."""
        self._local = threading.local()
        self._own = _Own()

    def runqueue_ns(self) -> int:
        """Return how long the calling thread was runnable but not running, ns, or UNMEASURED."""
        try:
            return int(self._read(self._local.schedstat, 64).split()[1])
        except AttributeError:
            if self._open("schedstat"):
                return self.runqueue_ns()
        except (OSError, IndexError, ValueError, TypeError):
            pass
        return UNMEASURED

    def traffic(self) -> FileTraffic | None:
        """Return the file traffic of the calling thread so far, without reading these counters.

        None: /proc does not provide it.
        """
        try:
            own = self._own
            # the reading under way is counted when it has ended
            chars, calls = (own.chars, own.calls)
            fields = self._read(self._local.io, 256).split()
            usage = resource.getrusage(resource.RUSAGE_THREAD)
            system_ns = int(usage.ru_stime * 1e9)
            return FileTraffic(
                int(fields[1]) - chars,
                int(fields[5]) - calls,
                int(fields[9]),
                usage.ru_majflt,
                usage.ru_minflt,
                system_ns,
            )
        except AttributeError:
            if self._open("io"):
                return self.traffic()
        except (OSError, IndexError, ValueError, TypeError):
            pass
        return None

    def _read(self, file: int, size: int) -> bytes:
        data, own = os.pread(file, size, 0), self._own
        own.chars += len(data)
        own.calls += 1
        return data

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


counters = _ThreadCounters()
os.register_at_fork(after_in_child=counters.forget_after_fork)


def anchor() -> dict[str, int]:
    """Return a pair of (monotonic, wall-clock) readings, to convert a run's times to calendar time."""
    return {"perf_counter_ns": _monotonic_ns(), "time_ns": _calendar_ns()}


_SLACK_NS = 20_000

#: (start, CPU time, run-queue delay) of the thread so far, ns; the last UNMEASURED where the kernel
#: does not tell.
Moment = tuple[int, int, int]


class _Known(threading.local):
    """The clocks of this thread when its run-queue delay was last read."""

    # wall less CPU, ns, so small that the first moment reads; the delay
    said = (-(1 << 62), UNMEASURED)


_known = _Known()


def now() -> Moment:
    """Return the beginning of a span."""
    cpu = cpu_ns()
    wall = wall_ns()
    lost, delay = _known.said
    # negative: the CPU clock of a forked child restarts
    if not -_SLACK_NS < wall - cpu - lost < _SLACK_NS:
        delay = _read(wall - cpu)
    return wall, cpu, delay


def now_without_cpu() -> Moment:
    """Return the beginning of a span that needs only wall time.

    It skips both readings of the CPU clock.
    """
    return wall_ns(), UNMEASURED, UNMEASURED


def since(begun: Moment) -> tuple[int, int, int]:
    """Return (wall, CPU, run-queue) nanoseconds from ``begun`` until now.

    Run-queue time is limited to the time without a CPU.
    """
    wall = wall_ns()
    start, cpu_before, delay_before = begun
    if cpu_before < 0:
        return wall - start, UNMEASURED, UNMEASURED
    cpu = cpu_ns()
    lost, delay = _known.said
    if not -_SLACK_NS < wall - cpu - lost < _SLACK_NS:
        delay = _read(wall - cpu)
    wall -= start
    cpu -= cpu_before
    if delay < 0 or delay_before < 0:
        return wall, cpu, UNMEASURED
    return wall, cpu, 0 if delay == delay_before else max(0, min(delay - delay_before, wall - cpu))


def _read(lost: int) -> int:
    delay = counters.runqueue_ns()
    _known.said = lost, delay
    return delay
