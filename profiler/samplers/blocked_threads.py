"""Samples the threads that make batches, and finds out what a blocked one waits for.

How long a sample is blocked is measured exactly, thread by thread (profiler/clock.py). Looks from
outside only say by what: a thread that sleeps cannot tell. They begin _FIRST_LOOK_S apart and
come half as often each time that _ROUNDS of them were made.

What it waits for follows from the system call that it is in (/proc/PID/task/TID/syscall,
proc_pid_syscall(5)). The kernel tells it of threads of one's own process, and of other processes of
the same user unless Yama or a container forbids it.
"""

import os
import platform
import threading

from feedline.profiler import clock, proc
from feedline.profiler.events import Stage
from feedline.profiler.record.recorder import recorder
from feedline.profiler.samplers.source import OpenFile

# a run of two seconds has 80 looks; half of a share from 80 is known to 11 points (binomial, 95 %)
_FIRST_LOOK_S = 0.025
_PATIENCE_S = 1.0
_ROUNDS = 200  # with a longer distance from then on: 5 s, 10 s, 20 s, ...; an hour has 2,000 rounds
_MAX_THREADS = 8  # threads in one round, 15 us each; more take turns
# multiples of it modulo 1 are spread evenly, so that looks fall into step with nothing
_GOLDEN = 0.6180339887498949


class BlockedThreads:
    """What threads wait for, recorded as LOOK records.

    Attributes:
        due_ns: when the next round should be made, in ns of ``clock.wall_ns``.
    """

    def __init__(self) -> None:
        self.due_ns = 0
        self._lock = threading.Lock()
        self._threads: dict[
            int, tuple[int, OpenFile]
        ] = {}  # thread -> its process, and where the kernel tells of it
        self._rounds = 0

    def watch(self, makers: list[tuple[int, int]]) -> None:
        """Look at these threads as well, (process, thread) each, while they live.

        It can be called from any thread.

        Raises:
            OSError: one has ended, or the kernel does not tell.
        """
        new = {
            thread: (pid, OpenFile(f"/proc/{pid}/task/{thread}/syscall")) for pid, thread in makers
        }
        # epochs may be shorter than the time between looks: those of earlier ones keep no
        # descriptors
        before = list(self._threads.items())
        ended = [thread for thread, (_, file) in before if not _lives(file)]
        self._change(ended, new)

    def _change(self, ended: list[int], new: dict[int, tuple[int, OpenFile]]) -> None:
        """Leave threads out, and add others; not where the lock is not to be had.

        A signal's handler may have interrupted the thread that holds it, and wait for this one.
        """
        if not self._lock.acquire(timeout=_PATIENCE_S):
            return
        try:
            kept = {thread: both for thread, both in self._threads.items() if thread not in ended}
            self._threads = kept | new
        finally:
            self._lock.release()

    def look(self) -> None:
        """Look at all of them once.

        It never raises.
        """
        threads = list(self._threads.items())
        period = _FIRST_LOOK_S * 1e9 * 2 ** (self._rounds // _ROUNDS)
        self._rounds += bool(threads)
        self.due_ns = clock.wall_ns() + int(period * (0.5 + self._rounds * _GOLDEN % 1))
        begin = (
            self._rounds * _MAX_THREADS % max(len(threads), 1) if len(threads) > _MAX_THREADS else 0
        )
        for thread, (pid, file) in (threads + threads)[
            begin : begin + min(_MAX_THREADS, len(threads))
        ]:
            try:
                kind = _stopped_or(blocked_by(pid, file.read()), pid)
            except (OSError, ValueError, IndexError):  # it has ended
                self._change([thread], {})
                continue
            segment = recorder.always_on_segment()
            if kind is not None and segment is not None:
                stands_for = int(period * max(1, len(threads) / _MAX_THREADS))
                segment.add(
                    Stage.LOOK,
                    clock.wall_ns(),
                    0,
                    number=pid,
                    extra=stands_for,
                    source=segment.name_id(kind),
                )


def _stopped_or(kind: str | None, pid: int) -> str | None:
    """Return what a thread waits for, or that its process is stopped, which explains no call."""
    if kind not in (_PAGE_FAULT, ON_UNKNOWN):
        return kind
    state = next(iter(proc.stat(pid)), b"")
    return ON_STOP if state in _STOPPED else kind


def _lives(file: OpenFile) -> bool:
    try:
        return bool(file.read())
    except OSError:
        return False


ON_SLEEP, ON_LOCK, ON_NETWORK, ON_PROCESS = "sleep", "lock", "network", "another process"
ON_SHARED_LOCK = "shared lock"  # of several processes: of a file, or in memory that they share
_FILE, _PAGE_FAULT, ON_UNKNOWN = "file", "page fault", "unknown"
ON_STOP = "stop"  # it was stopped, by SIGSTOP or a debugger
_STOPPED = (b"T", b"t")

#: Numbers of the distinguished calls: arch/x86/entry/syscalls/syscall_64.tbl,
#: include/uapi/asm-generic/unistd.h (arm64).
_X86 = {
    "sleep": (35, 230),
    "futex": (202,),
    "lock": (449, 455, 65, 220, 73, 72),
    "child": (61, 247),
    "message": (70, 243),
    "path": (2, 257, 437, 4, 6, 262, 332, 21, 269, 439, 89, 267, 208, 333, 426),
    "descriptor": (
        0,
        17,
        19,
        295,
        327,
        45,
        47,
        299,
        43,
        288,
        42,
        44,
        46,
        40,
        275,
        217,
        74,
        75,
        1,
        20,
        5,
    ),
    "poll": (7, 271),
    "select": (23, 270),
    "epoll": (232, 281, 441),
}
_ARM64 = {
    "sleep": (101, 115),
    "futex": (98,),
    "lock": (449, 455, 193, 192, 32, 25),
    "child": (95, 260),
    "message": (188, 183),
    "path": (56, 437, 79, 291, 48, 439, 78, 4, 292, 426),
    "descriptor": (
        63,
        67,
        65,
        69,
        286,
        207,
        212,
        243,
        202,
        242,
        203,
        206,
        211,
        71,
        76,
        61,
        82,
        83,
        64,
        66,
        80,
    ),
    "poll": (73,),
    "select": (72,),
    "epoll": (22, 441),
}
_CALLS = {"x86_64": _X86, "aarch64": _ARM64}.get(platform.machine(), {})
_CALL_GROUPS = {number: group for group, numbers in _CALLS.items() for number in numbers}
_OF_GROUP = {
    "sleep": ON_SLEEP,
    "lock": ON_SHARED_LOCK,
    "child": ON_PROCESS,
    "message": ON_PROCESS,
    "path": _FILE,
}
_PRIVATE = 128  # FUTEX_PRIVATE_FLAG of futex(2): no other process uses it
_MOST_POLLED = 8


def blocked_by(pid: int, line: bytes) -> str | None:
    """Return what a thread waits for: ``ON_SLEEP``, ``ON_LOCK``, ... or ``ON_UNKNOWN``.

    None: the thread is running or runnable.

    Args:
        pid: its process.
        line: what the kernel says of it: ``running``, the number of a call and its arguments, or -1
            for a wait outside of any call.
    """
    words = line.split()
    if not words or words[0] == b"running":
        return None
    if words[0] == b"-1":
        return _PAGE_FAULT
    group, arguments = _CALL_GROUPS.get(int(words[0]), ""), [int(word, 16) for word in words[1:]]
    if group in _OF_GROUP:
        return _OF_GROUP[group]
    if group == "futex":
        return ON_LOCK if arguments[1] & _PRIVATE else ON_SHARED_LOCK
    if group == "descriptor":
        return _descriptor(pid, arguments[0])
    if group == "poll":
        return _any(pid, _polled(pid, *arguments[:2])) if arguments[1] else ON_SLEEP
    if group == "select":
        return ON_UNKNOWN if arguments[0] else ON_SLEEP  # time.sleep of Python 3.10
    return _any(pid, _registered(pid, arguments[0])) if group == "epoll" else ON_UNKNOWN


def _descriptor(pid: int, number: int) -> str:
    path = f"/proc/{pid}/fd/{number}"
    try:
        target = os.readlink(path)
        # a socket tells its protocol as an attribute (net/socket.c, sockfs_xattr_get)
        if target.startswith("socket:"):
            return (
                ON_PROCESS
                if os.getxattr(path, "system.sockprotoname").startswith(b"UNIX")
                else ON_NETWORK
            )
    except OSError:
        return ON_UNKNOWN
    if target.startswith("pipe:"):
        return ON_PROCESS
    return _FILE if target.startswith("/") and not target.startswith("/dev/") else ON_UNKNOWN


def _any(pid: int, descriptors: list[int]) -> str:
    """Return what several descriptors stand for: a network if one does.

    Loops of events have a pipe to be woken by as well.
    """
    kinds = {_descriptor(pid, number) for number in descriptors}
    return next((kind for kind in (ON_NETWORK, ON_PROCESS, _FILE) if kind in kinds), ON_UNKNOWN)


def _polled(pid: int, address: int, count: int) -> list[int]:
    """Return the descriptors of a ``struct pollfd[count]``."""
    try:
        with open(f"/proc/{pid}/mem", "rb", buffering=0) as memory:
            memory.seek(address)
            data = memory.read(8 * min(count, _MOST_POLLED))
    except (OSError, ValueError, OverflowError):
        return []
    return [
        int.from_bytes(data[at : at + 4], "little", signed=True) for at in range(0, len(data), 8)
    ]


def _registered(pid: int, number: int) -> list[int]:
    """Return the descriptors that an epoll watches (proc_pid_fdinfo(5))."""
    lines = map(bytes.split, proc.read(pid, f"fdinfo/{number}").splitlines())
    return [int(words[1]) for words in lines if words[:1] == [b"tfd:"]][:_MOST_POLLED]
