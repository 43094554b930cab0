"""What a blocked thread waits for, from the system call that it is in (/proc/PID/task/TID/syscall, proc_pid_syscall(5)).

The kernel tells it of threads of one's own process, and of other processes of the same user unless Yama or a container forbids it.
"""

import os
import platform

from feedline.profiler import proc

SLEEP, LOCK, NETWORK, PROCESS = "sleep", "lock", "network", "another process"
_FILE, _PAGE_FAULT, UNKNOWN = "file", "page fault", "unknown"

#: Numbers of the distinguished calls: arch/x86/entry/syscalls/syscall_64.tbl, include/uapi/asm-generic/unistd.h (arm64).
_X86 = {
    **{"sleep": (35, 230), "lock": (202, 449, 455, 65, 220, 73, 72), "child": (61, 247), "message": (70, 243)},
    "path": (2, 257, 437, 4, 6, 262, 332, 21, 269, 439, 89, 267, 208, 333, 426),
    "descriptor": (0, 17, 19, 295, 327, 45, 47, 299, 43, 288, 42, 44, 46, 40, 275, 217, 74, 75, 1, 20, 5),
    **{"poll": (7, 271), "select": (23, 270), "epoll": (232, 281, 441)},
}
_ARM64 = {
    **{"sleep": (101, 115), "lock": (98, 449, 455, 193, 192, 32, 25), "child": (95, 260), "message": (188, 183)},
    "path": (56, 437, 79, 291, 48, 439, 78, 4, 292, 426),
    "descriptor": (63, 67, 65, 69, 286, 207, 212, 243, 202, 242, 203, 206, 211, 71, 76, 61, 82, 83, 64, 66, 80),
    **{"poll": (73,), "select": (72,), "epoll": (22, 441)},
}
_CALLS = {"x86_64": _X86, "aarch64": _ARM64}.get(platform.machine(), {})
_GROUPS = {number: group for group, numbers in _CALLS.items() for number in numbers}
_OF_GROUP = {"sleep": SLEEP, "lock": LOCK, "child": PROCESS, "message": PROCESS, "path": _FILE}
_MOST_POLLED = 8


def waits_for(pid: int, line: bytes) -> str | None:
    """``SLEEP``, ``LOCK``, ... or ``UNKNOWN``; None if the thread is running or runnable.

    Args:
        pid: its process.
        line: what the kernel says of it: ``running``, the number of a call and its arguments, or -1 for a wait outside of any call.
    """
    words = line.split()
    if not words or words[0] == b"running":
        return None
    if words[0] == b"-1":
        return _PAGE_FAULT
    group, arguments = _GROUPS.get(int(words[0]), ""), [int(word, 16) for word in words[1:]]
    if group in _OF_GROUP:
        return _OF_GROUP[group]
    if group == "descriptor":
        return _descriptor(pid, arguments[0])
    if group == "poll":
        return _any(pid, _polled(pid, *arguments[:2])) if arguments[1] else SLEEP
    if group == "select":
        return UNKNOWN if arguments[0] else SLEEP  # time.sleep of Python 3.10
    return _any(pid, _registered(pid, arguments[0])) if group == "epoll" else UNKNOWN


def _descriptor(pid: int, number: int) -> str:
    path = f"/proc/{pid}/fd/{number}"
    try:
        target = os.readlink(path)
        if target.startswith("socket:"):  # a socket tells its protocol as an attribute (net/socket.c, sockfs_xattr_get)
            return PROCESS if os.getxattr(path, "system.sockprotoname").startswith(b"UNIX") else NETWORK
    except OSError:
        return UNKNOWN
    if target.startswith("pipe:"):
        return PROCESS
    return _FILE if target.startswith("/") and not target.startswith("/dev/") else UNKNOWN


def _any(pid: int, descriptors: list[int]) -> str:
    """What several descriptors stand for: a network if one does; loops of events have a pipe to be woken by as well."""
    found = {_descriptor(pid, number) for number in descriptors}
    return next((kind for kind in (NETWORK, PROCESS, _FILE) if kind in found), UNKNOWN)


def _polled(pid: int, address: int, count: int) -> list[int]:
    """The descriptors of a ``struct pollfd[count]``."""
    try:
        with open(f"/proc/{pid}/mem", "rb", buffering=0) as memory:
            memory.seek(address)
            data = memory.read(8 * min(count, _MOST_POLLED))
    except (OSError, ValueError, OverflowError):
        return []
    return [int.from_bytes(data[at : at + 4], "little", signed=True) for at in range(0, len(data), 8)]


def _registered(pid: int, number: int) -> list[int]:
    """The descriptors that an epoll watches (proc_pid_fdinfo(5))."""
    lines = map(bytes.split, proc.read(pid, f"fdinfo/{number}").splitlines())
    return [int(words[1]) for words in lines if words[:1] == [b"tfd:"]][:_MOST_POLLED]
