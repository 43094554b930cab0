"""Asks the kernel to run this process soon after it wakes, for a short time each.

Where all CPUs are busy, a process that wakes waits until another one sleeps. A helper that reads
stacks then would see those that sleep too often.
"""

import ctypes
import platform

_SLICE_NS = 100_000  # the shortest that there is; since Linux 6.12, ignored before
_PR_SET_TIMERSLACK = 29
_SCHED_SETATTR = {"x86_64": 314, "aarch64": 274}


class _SchedulerAttributes(ctypes.Structure):
    """struct sched_attr of the first version: 48 bytes."""

    _fields_ = [
        ("size", ctypes.c_uint32),
        ("policy", ctypes.c_uint32),
        ("flags", ctypes.c_uint64),
        ("nice", ctypes.c_int32),
        ("priority", ctypes.c_uint32),
        ("runtime", ctypes.c_uint64),
        ("deadline", ctypes.c_uint64),
        ("period", ctypes.c_uint64),
    ]


def run_soon_after_waking(nice: int) -> None:
    """Ask for it; nothing happens where the kernel does not know it.

    Args:
        nice: of this process, which stays.
    """
    libc = ctypes.CDLL(None)
    libc.prctl(_PR_SET_TIMERSLACK, 1, 0, 0, 0)  # 1 ns: the kernel may be late by 50 us else
    number = _SCHED_SETATTR.get(platform.machine())
    if number is not None:
        size = ctypes.sizeof(_SchedulerAttributes)
        attributes = _SchedulerAttributes(size, 0, 0, nice, 0, _SLICE_NS, 0, 0)
        libc.syscall(number, 0, ctypes.byref(attributes), 0)
