"""Watches a training for some seconds: which processes it has, their stacks, and what they use."""

import os
import pwd
import time
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Protocol

from feedline.profiler import proc
from feedline.profiler.attach import kernel, memory_reader, py_spy
from feedline.profiler.attach.memory_reader import MemoryReader, OtherPython
from feedline.profiler.attach.py_spy import PySpy
from feedline.profiler.attach.watched import (
    STOPPED,
    ZOMBIE,
    Usage,
    Watched,
    WatchedCpus,
    WatchedProcess,
    WatchedThread,
)
from feedline.profiler.errors import NotPermitted, ProcessNotFound
from feedline.profiler.samplers.blocked_threads import ON_UNKNOWN, blocked_by
from feedline.profiler.samplers.cgroup import cpu_quota
from feedline.profiler.samplers.machine import MachineCpu
from feedline.profiler.samplers.processes import descendants
from feedline.profiler.stacks.interpreter_layout import UnknownLayout
from feedline.profiler.stacks.memory_access import ProcessMemory
from feedline.profiler.stacks.ration import run_soon_after_waking

_LOOK_S = 1.0  # between two looks for new processes
_MOST_PROCESSES = 300
# after its start a process may still become another program, or its Python begin
_YOUNG_S = 2.0
_PYTHONS = ("python", "pt_")  # names of processes that have ended; torch's workers have the second
_YAMA = Path("/proc/sys/kernel/yama/ptrace_scope")


class _StackReader(Protocol):
    """Reads stacks: feedline itself, or py-spy."""

    def meet(self, pid: int) -> None:
        """Read a process from now on."""

    def begun(self, pids: Iterable[int]) -> None:
        """Begin with these processes."""

    def read_until(self, end_s: float) -> None:
        """Read until a moment of ``time.monotonic``."""

    def end(self) -> None:
        """End reading."""

    def threads(self, pid: int) -> tuple[WatchedThread, ...]:
        """Return what was seen of a process."""


def watch(pid: int, seconds: float) -> Watched:
    """Watch a process and all below it.

    It ends early where all of them end.

    Args:
        pid: of a training, or of what has started one.
        seconds: for which to look.

    Raises:
        ProcessNotFound: there is none, or none of them runs Python.
        NotPermitted: they must not be read.
        MissingDependency: py-spy is needed, and is not installed.
    """
    pythons = _pythons(pid)
    run_soon_after_waking(os.nice(0))
    reader, name = _reader(pythons, seconds)
    watching, room = _Watching(pid, reader), _CpuRoom(pid)
    watching.look()
    reader.begun(_tops(pythons))
    spent_s, begin_s = time.process_time(), time.monotonic()
    while (now := time.monotonic()) < begin_s + seconds and watching.look():
        reader.read_until(min(now + _LOOK_S, begin_s + seconds))
    cost_s = time.process_time() - spent_s
    reader.end()
    processes, cpus = watching.processes(), room.seen()
    if not any(process.threads for process in processes):
        raise ProcessNotFound(
            f"process {pid} ended before anything was seen of it: name another"
            if kernel.state(pid) in ("", ZOMBIE)
            else f"no stack of process {pid} could be read: look at it for longer with --seconds"
        )
    return Watched(pid, time.monotonic() - begin_s, name, cost_s, processes, cpus)


def _pythons(pid: int) -> list[int]:
    """Return the processes that run Python, the one that was named or below it.

    Raises as ``watch``.
    """
    if not kernel.state(pid):
        raise ProcessNotFound(
            f"there is no process {pid} here: it has ended, or has another number in its container"
        )
    if kernel.state(pid) == ZOMBIE:
        raise ProcessNotFound(f"process {pid} has ended: name one that runs")
    pythons: list[int] = []
    refused = 0
    for one in (pid, *descendants(pid)):
        try:
            if kernel.uses_python(one) and not proc.tidies_up(one):
                pythons.append(one)
        except PermissionError as error:
            if one == pid:
                raise _not_permitted(pid) from error
            refused = refused or one
    if refused and not pythons:
        raise _not_permitted(refused)
    if not pythons:
        raise ProcessNotFound(
            f"process {pid} ({kernel.name(pid)}) does not run Python: name the training's process"
        )
    return pythons


def _reader(pythons: list[int], seconds: float) -> tuple[_StackReader, str]:
    """Return what reads these processes, and its name. Raises as ``watch``."""
    _check_readable(pythons[0])
    try:
        reader = MemoryReader()
    except (UnknownLayout, OSError):
        return PySpy(seconds), py_spy.NAME
    other = 0
    for pid in pythons:
        try:
            reader.meet(pid)
        except OtherPython:
            other += 1
        except OSError:
            continue  # it has ended meanwhile, or has begun only now
    if other and (other == len(pythons) or py_spy.program() is not None):
        return PySpy(seconds), py_spy.NAME
    return reader, memory_reader.NAME


def _check_readable(pid: int) -> None:
    """Raise NotPermitted if a process's memory must not be read; ProcessNotFound if it ended."""
    maps = proc.read(pid, "maps")
    try:
        ProcessMemory(pid).words(int(maps.partition(b"-")[0], 16), 1)
    except (OSError, ValueError) as error:
        if not kernel.state(pid):
            raise ProcessNotFound(f"process {pid} has ended: name one that runs") from error
        raise _not_permitted(pid) from error


def _not_permitted(pid: int) -> NotPermitted:
    """Return the error for a process that must not be read, with the way out."""
    owner = _owner(pid)
    if owner not in (None, os.geteuid()):
        return NotPermitted(
            f"process {pid} belongs to {_name_of(owner)}: attach as that user, or as root with sudo"
        )
    with suppress(OSError):
        if _YAMA.read_text().strip() != "0":
            return NotPermitted(
                f"this system lets only root read process {pid} (ptrace_scope): use sudo, or "
                "sysctl kernel.yama.ptrace_scope=0"
            )
    return NotPermitted(
        f"reading process {pid} is not permitted: use sudo; in a container, start it with "
        "--cap-add SYS_PTRACE"
    )


def _owner(pid: int) -> int | None:
    try:
        return os.stat(f"/proc/{pid}").st_uid
    except OSError:
        return None


def _name_of(user: int | None) -> str:
    try:
        return f"user {pwd.getpwuid(user or 0).pw_name}"
    except KeyError:
        return f"user {user}"


def _is_young(pid: int) -> bool:
    return time.time() - kernel.begun_s(pid) < _YOUNG_S


def _tops(pids: list[int]) -> list[int]:
    """Return those that are below no other."""
    below = {child for pid in pids for child in descendants(pid)}
    return [pid for pid in pids if pid not in below]


class _CpuRoom:
    """The CPUs that a process may use, and how many of them are free from now on."""

    def __init__(self, pid: int) -> None:
        self._mask: set[int] = set()
        with suppress(OSError):
            self._mask = os.sched_getaffinity(pid)
        self._machine = MachineCpu(allowed=self._mask)
        self._readable = self._machine.probe() is None
        # of the other groups' quotas nothing is known
        same = proc.read(pid, "cgroup") == proc.read(os.getpid(), "cgroup")
        quota = cpu_quota() if same else None
        number = float(len(self._mask))
        self._allowed = number if quota is None else min(number, quota)

    def seen(self) -> WatchedCpus | None:
        """Return what was seen; None: the kernel does not say."""
        shares: dict[str, float] = {}
        if self._mask and self._readable:
            with suppress(OSError, ValueError):
                shares = self._machine.read()
        busy = shares.get("cpu/allowed", shares.get("cpu/machine"))
        if busy is None:
            return None
        idle = max(0.0, 1 - busy - shares.get("cpu/steal", 0.0))
        number = len(self._mask)
        return WatchedCpus(self._allowed, idle * number, busy * number)


class _Watching:
    """The processes that are watched.

    Args:
        pid: the process that was named.
        reader: of their stacks.
    """

    def __init__(self, pid: int, reader: _StackReader) -> None:
        self._pid, self._reader = pid, reader
        self._met: dict[int, tuple[WatchedProcess, Usage, float, dict[int, int]]] = {}
        self._states: dict[int, str] = {}
        self._ended: dict[int, float] = {}
        self._usage: dict[int, Usage] = {}
        self._young: dict[int, int] = {}

    def look(self) -> bool:
        """Look for new processes, and for those that have ended; return whether any is left."""
        later = False
        for pid in [self._pid, *descendants(self._pid)]:
            if pid in self._young:
                self._look_at_young(pid)
            if (
                pid not in self._met
                and len(self._met) < _MOST_PROCESSES
                and not proc.tidies_up(pid)
            ):
                with suppress(PermissionError):
                    later |= not self._meet(pid)
        for pid in self._met:
            if pid in self._ended:
                continue
            self._states[pid] = kernel.state(pid)
            if self._states[pid] in ("", "X"):
                self._ended[pid] = time.monotonic()
            else:
                self._usage[pid] = kernel.usage(pid)
        return later or any(self._states[pid] not in ("", "X", ZOMBIE) for pid in self._met)

    def processes(self) -> tuple[WatchedProcess, ...]:
        """Return what was seen."""
        self.look()
        now = time.monotonic()
        return tuple(self._seen(pid, now) for pid in self._met)

    def _look_at_young(self, pid: int) -> None:
        """Forget a process that has replaced its program since it was met."""
        young = _is_young(pid)
        replaced = kernel.stack_begin(pid) not in (0, self._young[pid])
        if replaced:
            del self._met[pid]
        if replaced or not young:
            del self._young[pid]

    def _meet(self, pid: int) -> bool:
        """Watch a process that runs Python; return False if that is to be tried again."""
        has_ended, young = kernel.state(pid) == ZOMBIE, _is_young(pid)
        if has_ended and not kernel.name(pid).startswith(_PYTHONS):
            return True
        if not has_ended and not kernel.uses_python(pid):
            return True
        stack_begin = kernel.stack_begin(pid)
        refused = "it has ended" if has_ended else self._why_refused(pid)
        if refused and young and not has_ended:
            return False
        if young:
            self._young[pid] = stack_begin
        rank, launcher = kernel.rank(pid)
        process = WatchedProcess(
            pid,
            kernel.parent(pid),
            rank,
            kernel.name(pid),
            kernel.command(pid),
            kernel.folder(pid),
            kernel.begun_s(pid),
            kernel.state(pid),
            False,
            0.0,
            Usage(),
            (),
            refused,
            launcher,
        )
        switches = {number: kernel.switches(pid, number) for number in kernel.threads(pid)}
        self._met[pid] = process, kernel.usage(pid), time.monotonic(), switches
        return True

    def _why_refused(self, pid: int) -> str:
        """Read a process from now on; return why that fails, empty: it does not."""
        try:
            self._reader.meet(pid)
        except OtherPython:
            return "it runs another Python"
        except OSError:
            return "reading its memory is not permitted"
        return ""

    def _seen(self, pid: int, now: float) -> WatchedProcess:
        process, before, met_s, switches = self._met[pid]
        threads = tuple(
            replace(
                thread,
                switches=kernel.switches(pid, thread.number) - switches.get(thread.number, 0),
                waits_on=_waits_on(pid, thread.number),
                waited_s=kernel.not_run_s(pid, thread.number) if thread.is_main else None,
            )
            for thread in self._reader.threads(pid)
        )
        return replace(
            process,
            state=self._states[pid],
            ended=pid in self._ended or self._states[pid] == ZOMBIE,
            seconds=self._ended.get(pid, now) - met_s,
            usage=kernel.between(before, self._usage.get(pid, before)),
            threads=threads,
        )


def _waits_on(pid: int, thread: int) -> str:
    if kernel.state(pid) == STOPPED:
        return ""
    with suppress(ValueError, LookupError, OSError):
        waits = blocked_by(pid, proc.read(pid, f"task/{thread}/syscall"))
        return waits if waits not in (None, ON_UNKNOWN) else ""
    return ""
