"""What the kernel tells of a process in /proc/PID (proc(5))."""

import hashlib
import os
from contextlib import suppress


def read(pid: int, name: str) -> bytes:
    """Return a file of the process; empty if there is no such process, or it must not be read."""
    try:
        with open(f"/proc/{pid}/{name}", "rb") as file:
            return file.read()
    except OSError:
        return b""


def stat(pid: int) -> list[bytes]:
    """Return the fields of /proc/PID/stat from the third on.

    The second, the name, can hold anything.
    """
    return read(pid, "stat").rpartition(b")")[2].split()


def started(pid: int) -> int:
    """Return when a process started, in clock ticks since boot.

    It is 0 when there is none or it is a zombie.
    """
    fields = stat(pid)
    return int(fields[19]) if len(fields) > 19 and fields[0] not in (b"Z", b"X") else 0


def home() -> str:
    """Return an id that processes share which can see each other: of a kernel, and its PID namespace.

    It reveals nothing about the machine. Empty: the kernel does not tell.
    """
    try:
        namespace = os.stat("/proc/self/ns/pid").st_ino
        with open("/proc/sys/kernel/random/boot_id", "rb") as file:
            return hashlib.sha256(b"%d %s" % (namespace, file.read())).hexdigest()[:16]
    except OSError:
        return ""


def tidies_up(pid: int) -> bool:
    """Return whether a process only waits for others to end, to unlink their shared memory.

    Killed before, it would leave that behind. Source: ``multiprocessing/resource_tracker.py``;
    torch's ``lib/libshm/manager.cpp``.
    """
    command = read(pid, "cmdline")
    return b"multiprocessing.resource_tracker" in command or b"torch_shm_manager" in command


def cpu_model(path: str = "/proc/cpuinfo") -> str:
    """Return the model of the first CPU, as the kernel names it.

    That is ``AMD EPYC 7763 64-Core Processor``, or ``0x41 0xd0c`` (implementer and part) where
    there is no name, as on ARM. Empty: the kernel does not tell.
    """
    facts: dict[str, str] = {}
    with suppress(OSError), open(path, encoding="utf-8", errors="replace") as file:
        for line in file:
            name, _, value = line.partition(":")
            if name.strip() in facts:  # of the next CPU
                break
            facts[name.strip()] = value.strip()
    return facts.get("model name") or " ".join(
        facts[name] for name in ("CPU implementer", "CPU part") if name in facts
    )


def cpus_allowed() -> str:
    """Return the CPUs that this process may run on, as the kernel lists them: ``0-7,16-23``.

    Empty: it does not tell.
    """
    for line in read(os.getpid(), "status").splitlines():
        name, _, value = line.partition(b":")
        if name == b"Cpus_allowed_list":
            return value.strip().decode()
    return ""
