"""CPU time and memory of this process and all of its descendants."""

import os
from collections.abc import Callable

from feedline.profiler.samplers.source import OpenFile, Rates, Source, read_file

RESCAN_TICKS = 20  # looking through all threads for children costs some 10 us a thread
_CLOCK_TICKS = os.sysconf("SC_CLK_TCK")
_PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")


class Processes(Source):
    """The processes below the one that probes.

    cpu/processes: CPU seconds per second. Children that have ended count through their parent; one that another thread started is found up
        to RESCAN_TICKS readings late, and its CPU time until then is booked at once.
    memory/processes: resident bytes, summed; a page that several share counts for each.
    memory/processes_anonymous: the same without files and shared memory, once in RESCAN_TICKS readings. Pages that a forked worker still
        shares with its parent are in it, so copy-on-write growth shows in memory/available instead. (Exact private bytes would need
        smaps_rollup: milliseconds per GB.)
    """

    name = "processes"

    def __init__(self, pid: int | None = None, proc: str = "/proc") -> None:
        super().__init__()
        self._pid = os.getpid() if pid is None else pid
        self._proc = proc
        self._stats: dict[int, OpenFile] = {}
        self._readings = 0
        self._grew = True
        self._rates = Rates()

    def prepare(self) -> str | None:
        self.units = {"cpu/processes": "s/s", "memory/processes": "B", "memory/processes_anonymous": "B"}
        self._stats[self._pid] = OpenFile(f"{self._proc}/{self._pid}/stat")
        self.read()
        self._readings = 0  # so that the first reading after it has all gauges
        return None

    def read(self) -> dict[str, float]:
        rescan = self._readings % RESCAN_TICKS == 0
        self._readings += 1
        self._find_children(everywhere=rescan or self._grew)
        cpu_ticks = pages = 0
        for pid, stat in list(self._stats.items()):
            try:
                fields = stat.read().rsplit(b")", 1)[1].split(None, 22)
            except OSError:
                if pid == self._pid:
                    raise
                del self._stats[pid]
                continue
            # proc_pid_stat(5): utime, stime, both of the children that were waited for; resident pages
            cpu_ticks += int(fields[11]) + int(fields[12]) + int(fields[13]) + int(fields[14])
            pages += int(fields[21])
        values = self._rates.per_second({"cpu/processes": cpu_ticks / _CLOCK_TICKS})
        values["memory/processes"] = float(pages * _PAGE_BYTES)
        if rescan:
            values["memory/processes_anonymous"] = float(self._anonymous_pages() * _PAGE_BYTES)
        return values

    def _find_children(self, everywhere: bool) -> None:
        """Look at the main thread's children, or at all threads of all processes: who has a new child may soon have grandchildren."""
        found = descendants(self._pid, self._proc) if everywhere else _children_of_thread(self._proc, self._pid, self._pid)
        new = [pid for pid in found if pid not in self._stats]
        self._grew = bool(new)
        for pid in new:
            try:
                self._stats[pid] = OpenFile(f"{self._proc}/{pid}/stat")
            except OSError:  # gone again
                continue

    def _anonymous_pages(self) -> int:
        pages = 0
        for pid in self._stats:
            try:
                statm = read_file(f"{self._proc}/{pid}/statm").split()
            except OSError:
                continue
            pages += int(statm[1]) - int(statm[2])  # resident, of those shared
        return pages


def descendants(pid: int, proc: str = "/proc") -> list[int]:
    """All processes below ``pid``, parents before children. Those that start or end meanwhile may be missing."""
    children = _children_by_thread if os.path.exists(f"{proc}/{pid}/task/{pid}/children") else _children_by_parent(proc)
    found, seen = [], [pid]
    for parent in seen:
        new = [child for child in children(proc, parent) if child not in seen]
        seen += new
        found += new
    return found


def _children_of_thread(proc: str, pid: int, thread: int) -> list[int]:
    """Children started by one thread; empty if the kernel does not provide it (it needs CONFIG_PROC_CHILDREN)."""
    try:
        return [int(child) for child in read_file(f"{proc}/{pid}/task/{thread}/children").split()]
    except OSError:
        return []


def _children_by_thread(proc: str, pid: int) -> list[int]:
    try:
        threads = os.listdir(f"{proc}/{pid}/task")
    except OSError:
        return []
    return [child for thread in threads for child in _children_of_thread(proc, pid, int(thread))]


def _children_by_parent(proc: str) -> Callable[[str, int], list[int]]:
    """The slow way, for kernels that do not list children: ask every process for its parent."""
    children: dict[int, list[int]] = {}
    for entry in os.listdir(proc):
        if entry.isdecimal():
            try:
                parent = int(read_file(f"{proc}/{entry}/stat").rsplit(b")", 1)[1].split()[1])
            except (OSError, IndexError):
                continue
            children.setdefault(parent, []).append(int(entry))
    return lambda _, pid: children.get(pid, [])
