"""What the kernel says of processes that are watched (proc(5))."""

import functools
import os
import threading
import time
from contextlib import suppress

from feedline.profiler import proc, ranks
from feedline.profiler.attach.watched import Usage

_TICKS, _PAGE = os.sysconf("SC_CLK_TCK"), os.sysconf("SC_PAGE_SIZE")


def usage(pid: int) -> Usage:
    """Return what a process has used since its start."""
    fields = proc.stat(pid)
    if len(fields) < 22:
        return Usage()
    waits = proc.read(pid, "schedstat").split()
    io = dict(
        line.split(b": ") for line in proc.read(pid, "io").splitlines() if line.count(b": ") == 1
    )
    return Usage(
        (int(fields[11]) + int(fields[12])) / _TICKS,
        int(waits[1]) * 1e-9 if len(waits) > 1 else 0.0,
        int(io.get(b"read_bytes", 0)),
        int(io.get(b"write_bytes", 0)),
        int(fields[9]),
        int(fields[21]) * _PAGE,
    )


def between(begin: Usage, end: Usage) -> Usage:
    """Return what was used between two moments."""
    return Usage(
        max(0.0, end.cpu_s - begin.cpu_s),
        max(0.0, end.runqueue_s - begin.runqueue_s),
        max(0, end.read_bytes - begin.read_bytes),
        max(0, end.written_bytes - begin.written_bytes),
        max(0, end.faults - begin.faults),
        end.rss_bytes or begin.rss_bytes,
    )


def state(pid: int) -> str:
    """Return the letter of a process's state; empty: there is no such process."""
    fields = proc.stat(pid)
    return fields[0].decode() if fields else ""


def parent(pid: int) -> int:
    """Return who started a process; 0: there is none."""
    fields = proc.stat(pid)
    return int(fields[1]) if len(fields) > 1 else 0


def begun_s(pid: int) -> float:
    """Return when a process started, seconds since 1970: equal where the kernel counts no finer."""
    fields = proc.stat(pid)
    return _booted_s() + (int(fields[19]) / _TICKS if len(fields) > 19 else 0.0)


def stack_begin(pid: int) -> int:
    """Return the address of a process's stack: another one after exec; 0: it is not known."""
    fields = proc.stat(pid)
    return int(fields[25]) if len(fields) > 25 else 0


@functools.cache
def _booted_s() -> float:
    return time.time() - time.clock_gettime(time.CLOCK_BOOTTIME)


def command(pid: int) -> tuple[str, ...]:
    """Return the program and the arguments of a process; empty: it has none."""
    words = proc.read(pid, "cmdline").decode("utf-8", "replace").split("\0")
    return tuple(words[:-1])


def folder(pid: int) -> str:
    """Return where a process works; empty: that must not be read."""
    try:
        return os.readlink(f"/proc/{pid}/cwd")
    except OSError:
        return ""


def rank(pid: int) -> tuple[int | None, str]:
    """Return a process's rank and its launcher, as their variables say; None, none: they do not."""
    place = ranks.place(ranks.environment_of(pid))
    return (place.rank if place.launcher != "none" else None), place.launcher


def own_number(pid: int) -> int:
    """Return a process's number as it sees it itself, in a namespace of its own."""
    for line in proc.read(pid, "status").splitlines():
        if line.startswith(b"NSpid:"):
            return int(line.split()[-1])
    return pid


def thread(pid: int, own: int) -> int:
    """Return the number of a process's thread here, of its number as the process sees it."""
    if own_number(pid) == pid:
        return own
    try:
        threads = os.listdir(f"/proc/{pid}/task")
    except OSError:
        return 0
    return next(
        (
            int(number)
            for number in threads
            for line in proc.read(pid, f"task/{number}/status").splitlines()
            if line.startswith(b"NSpid:") and int(line.split()[-1]) == own
        ),
        0,
    )


def switches(pid: int, number: int) -> int:
    """Return how often a thread gave up its CPU."""
    lines = proc.read(pid, f"task/{number}/status").splitlines()
    return sum(int(line.split()[1]) for line in lines if line.startswith(b"voluntary"))


def not_run_s(pid: int, number: int) -> float | None:
    """Return for how long a thread has not run; None: the kernel does not say.

    The calling thread visits the CPU on which it ran last: the clocks of two CPUs can be hours
    apart, as each leaves out other times.
    """
    cpu = _last_cpu(pid, number)
    ran_ms = _last_ran_ms(pid, number)
    if cpu is None or ran_ms is None:
        return None
    allowed = os.sched_getaffinity(0)
    try:
        os.sched_setaffinity(0, {cpu})
        now_ms = _last_ran_ms(os.getpid(), threading.get_native_id())
    except OSError:
        return None  # this process must not use that CPU
    finally:
        with suppress(OSError):  # a sandbox may forbid it
            os.sched_setaffinity(0, allowed)
    if _last_cpu(pid, number) != cpu:
        return 0.0  # it runs
    return None if now_ms is None else max(0.0, (now_ms - ran_ms) * 1e-3)


def _last_cpu(pid: int, number: int) -> int | None:
    """Return the CPU on which a thread ran last; None: there is no such thread."""
    fields = proc.read(pid, f"task/{number}/stat").rpartition(b")")[2].split()
    return int(fields[36]) if len(fields) > 36 else None


def _last_ran_ms(pid: int, number: int) -> float | None:
    """Return when a thread ran last, by the clock of the CPU where it did; this one runs now."""
    for line in proc.read(pid, f"task/{number}/sched").splitlines():
        if line.startswith(b"se.exec_start"):
            return float(line.split()[-1])
    return None


def uses_python(pid: int) -> bool:
    """Return whether a process's program is Python.

    Raises:
        PermissionError: that must not be read.
    """
    try:
        program = os.path.basename(os.readlink(f"/proc/{pid}/exe"))
    except PermissionError:
        raise
    except OSError:
        return False
    return program.startswith("python") or b"libpython" in proc.read(pid, "maps")


def name(pid: int) -> str:
    """Return a process's short name; empty: there is none."""
    return proc.read(pid, "comm").decode("utf-8", "replace").strip()


def threads(pid: int) -> list[int]:
    """Return the numbers of a process's threads."""
    try:
        return list(map(int, os.listdir(f"/proc/{pid}/task")))
    except OSError:
        return []
