"""Memory of the training's processes: of the main one, of those below it, and of each worker."""

import os
import signal
import sys
import threading
import weakref
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any

from feedline.profiler import clock
from feedline.profiler.samplers.processes import descendants
from feedline.profiler.samplers.source import GaugeSource, OpenFile, read_file

_PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")
_KIB = 1024
#: Times the CPU time of a look at the processes below, until the next: the kernel goes through
#: their pages, and mappings cannot change meanwhile. At first, 1 % of a CPU.
_PAUSE, _EARLY_PAUSE, _EARLY_NS = 500, 100, 60_000_000_000
#: The same of a count of blocks, which holds the GIL. It touches a page for each 16 kB of small
#: objects, so that 880,000 blocks took 0.9 ms, and 7 ms where the caches had other data meanwhile.
_BLOCKS_PAUSE, _EARLY_BLOCKS_PAUSE = 1000, 400
_NEVER = 1 << 62
_MOST_CHILDREN = 16  # processes that are looked at, of more alike
_MOST_AT_ONCE = 16  # workers in a reading, 3 us each; of more, they take turns
_MOST_WORKERS = 128  # workers that are watched
_PATIENCE_S = 1.0


def _own_bytes(statm: OpenFile) -> int:
    """Return resident bytes without files and shared memory (/proc/PID/statm)."""
    fields = statm.read().split()
    return (int(fields[1]) - int(fields[2])) * _PAGE_BYTES


def _counts_blocks() -> bool:
    """Tell whether Python's own allocator counts its blocks, without stopping other threads."""
    with_gil: Callable[[], bool] = getattr(sys, "_is_gil_enabled", lambda: True)
    return with_gil() and sys.getallocatedblocks() > 0


def _open_figures() -> int | None:
    """Return how many figures pyplot keeps, until they are closed; None: the program has no pyplot."""
    keeps = getattr(sys.modules.get("matplotlib._pylab_helpers"), "Gcf", None)
    figures = getattr(keeps, "figs", None)
    return len(figures) if isinstance(figures, dict) else None


class PrivateMemory(GaugeSource):
    """What grows if a program keeps more and more.

    memory/main: resident bytes of the process that probes, without files and shared memory.
    memory/main_blocks: blocks of Python's own allocator that are in use: small objects have one
    each, large ones none. Counting them goes through all of its memory, so it comes rarely.
    memory/figures: figures that pyplot keeps, from when the program has imported it.
    memory/children: processes below it. memory/children_private: bytes in them that no other
    process shares; memory/children_anonymous: the same with those that a forked process still
    shares with its parent, so that copying on write moves bytes between the two and keeps their
    sum. The last three come rarely, as reading them takes a millisecond for some hundred MB.
    """

    name = "private memory"

    def __init__(self, pid: int | None = None, proc: str = "/proc") -> None:
        super().__init__()
        self._pid = os.getpid() if pid is None else pid
        self._proc = proc
        self._of_this_process = pid is None
        self._due_ns, self._begun_ns = 0, clock.wall_ns()
        self._blocks_due_ns = 0 if pid is None and _counts_blocks() else _NEVER

    def prepare(self) -> str | None:
        self._main = OpenFile(f"{self._proc}/{self._pid}/statm")
        self.units = {"memory/main": "B"}
        if self._blocks_due_ns != _NEVER:
            self.units["memory/main_blocks"] = "blocks"
        _own_bytes(self._main)
        try:
            self._rollup(self._pid)
        except (OSError, KeyError, ValueError):  # a kernel before 4.14, or a container without it
            self._due_ns = _NEVER
        else:
            self.units |= {
                "memory/children": "processes",
                "memory/children_private": "B",
                "memory/children_anonymous": "B",
            }
        return None

    def read(self) -> dict[str, float]:
        now = clock.wall_ns()
        early = now - self._begun_ns < _EARLY_NS
        values = {"memory/main": float(_own_bytes(self._main))}
        if now >= self._due_ns:
            begun = clock.cpu_ns()
            values |= self._of_children()
            pause = _EARLY_PAUSE if early else _PAUSE
            self._due_ns = now + pause * (clock.cpu_ns() - begun)
        if self._of_this_process and (figures := _open_figures()) is not None:
            self.units["memory/figures"] = "figures"
            values["memory/figures"] = float(figures)
        if now >= self._blocks_due_ns:
            begun = clock.cpu_ns()
            values["memory/main_blocks"] = float(sys.getallocatedblocks())
            pause = _EARLY_BLOCKS_PAUSE if early else _BLOCKS_PAUSE
            self._blocks_due_ns = now + pause * (clock.cpu_ns() - begun)
        return values

    def _of_children(self) -> dict[str, float]:
        pids = descendants(self._pid, self._proc)
        private, anonymous, number = 0, 0, len(pids)
        for pid in pids[:_MOST_CHILDREN]:
            try:
                of = self._rollup(pid)
            except (OSError, KeyError, ValueError):  # it has ended, or is another user's
                number -= 1
                continue
            private += of[0]
            anonymous += of[1]
        if number <= max(len(pids) - _MOST_CHILDREN, 0):
            return {"memory/children": 0.0}
        alike = max(len(pids) / _MOST_CHILDREN, 1.0)
        return {
            "memory/children": float(number),
            "memory/children_private": private * alike,
            "memory/children_anonymous": anonymous * alike,
        }

    def _rollup(self, pid: int) -> tuple[int, int]:
        """Return private and anonymous bytes (Documentation/filesystems/proc.rst).

        Raises:
            OSError, KeyError, ValueError: the process has ended, or the kernel does not tell.
        """
        lines = read_file(f"{self._proc}/{pid}/smaps_rollup").splitlines()[1:]
        kib = {label: int(line.split()[1]) for line in lines if (label := line.split(b":")[0])}
        return kib[b"Private_Dirty"] * _KIB, kib[b"Anonymous"] * _KIB


class WorkerMemory(GaugeSource):
    """What each worker has in memory, without files and shared memory.

    memory/loader0-worker1: bytes. Pages that a forked worker shares with its parent are in it. A
    gauge begins with its worker; those of a later pass go on with it.
    """

    name = "worker memory"

    def __init__(self, proc: str = "/proc") -> None:
        super().__init__()
        self._proc = proc
        self._lock = threading.Lock()
        self._files: dict[str, OpenFile] = {}
        self._workers: dict[str, weakref.ref[Any]] = {}
        self._turn = 0

    def prepare(self) -> str | None:
        return None

    def watch(self, loader: int, workers: Sequence[Any]) -> None:
        """Read the memory of these workers as well, while they live.

        It can be called from any thread.

        Args:
            workers: processes of multiprocessing, by their numbers.

        Raises:
            OSError: one has ended.
            AttributeError, TypeError: they are no processes.
        """
        names = [f"memory/loader{loader}-worker{number}" for number in range(len(workers))]
        self._workers |= dict(zip(names, map(weakref.ref, workers)))
        new = {
            name: OpenFile(f"{self._proc}/{worker.pid}/statm")
            for name, worker in zip(names, workers)
        }
        self._change({}, new)

    def read(self) -> dict[str, float]:
        files = list(self._files.items())
        if len(files) > _MOST_AT_ONCE:
            self._turn = (self._turn + _MOST_AT_ONCE) % len(files)
            files = (files + files)[self._turn : self._turn + _MOST_AT_ONCE]
        values, ended = {}, {}
        for name, file in files:
            try:
                nbytes = _own_bytes(file)
            except (OSError, IndexError):
                nbytes = 0
            if nbytes:
                values[name] = float(nbytes)
            else:
                ended[name] = file
        if ended:
            self._change(ended, {})
        return values

    def killed(self) -> int:
        """Return the pid of a worker of the last ones that a SIGKILL has ended; 0: none was."""
        for known in list(self._workers.values()):
            worker = known()
            with suppress(Exception):  # of another process, after a fork
                if worker is not None and worker.exitcode == -signal.SIGKILL:
                    return int(worker.pid)
        return 0

    def _change(self, ended: dict[str, OpenFile], new: dict[str, OpenFile]) -> None:
        """Leave workers out, unless others have their places, and add others.

        Nothing changes where the lock is not to be had: a signal's handler or the collection of
        garbage may have interrupted the thread that holds it, and wait for this one, or be in it.
        """
        if not self._lock.acquire(timeout=_PATIENCE_S):
            return
        try:
            files = {
                name: file for name, file in self._files.items() if ended.get(name) is not file
            }
            for name, file in new.items():
                if name in files or len(files) < _MOST_WORKERS:
                    self.units[name] = "B"
                    files[name] = file
            self._files = files
        finally:
            self._lock.release()
