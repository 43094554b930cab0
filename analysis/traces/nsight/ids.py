"""Serialized process and thread numbers.

Nsight Systems packs where an event happened into 64 bits: 8 bits of hardware, 8 of virtual machine, 24 of process, 24 of thread; a
globalPid has 0 for its thread. Source: Nsight Systems User Guide, "Common SQLite Examples", "Serialized Process and Thread
Identifiers": ``globalTid / 0x1000000 % 0x1000000 AS PID, globalTid % 0x1000000 AS TID``.
"""

from feedline.analysis.intervals import IntArray

THREADS = 0x1000000


def process_of(global_tid: IntArray) -> IntArray:
    """The globalPid that each globalTid belongs to. int64 [n] -> int64 [n]."""
    return global_tid - global_tid % THREADS


def pid(global_id: int) -> int:
    """The operating system's number of the process."""
    return global_id // THREADS % THREADS


def tid(global_tid: int) -> int:
    """The operating system's number of the thread."""
    return global_tid % THREADS
