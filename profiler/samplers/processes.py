"""CPU time and memory of this process and all of its descendants.

It finds those among them that are not recorded. A process that uses torch does not record itself
where its environment was cleared, for example.
"""

import os
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from feedline.profiler import proc
from feedline.profiler.record import privacy
from feedline.profiler.samplers.source import GaugeSource, OpenFile, Rates, read_file
from feedline.profiler.store import process_log

if TYPE_CHECKING:
    from feedline.profiler.store.shapes import LineShape


_RESCAN_TICKS = 20  # looking through all threads for children costs some 10 us a thread
_CLOCK_TICKS = os.sysconf("SC_CLK_TCK")
_PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")


class ProcessTree(GaugeSource):
    """The processes below the one that probes.

    cpu/processes: CPU seconds per second. Children that have ended count through their parent; one
    that another thread started is found up
        to RESCAN_TICKS readings late, and its CPU time until then is booked at once.
    memory/processes: resident bytes, summed; a page that several share counts for each.
    memory/processes_anonymous: the same without files and shared memory, once in RESCAN_TICKS
    readings. Pages that a forked worker still
        shares with its parent are in it, so copy-on-write growth shows in memory/available instead.
        (Exact private bytes would need
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
        self.units = {
            "cpu/processes": "s/s",
            "memory/processes": "B",
            "memory/processes_anonymous": "B",
        }
        self._stats[self._pid] = OpenFile(f"{self._proc}/{self._pid}/stat")
        self.read()
        self._readings = 0  # so that the first reading after it has all gauges
        return None

    def read(self) -> dict[str, float]:
        rescan = self._readings % _RESCAN_TICKS == 0
        self._readings += 1
        self._find_children(everywhere=rescan or self._grew)
        known = 0
        while len(self._stats) != known:  # who ended meanwhile may be in no process's ticks
            known = len(self._stats)
            cpu_ticks, pages = self._sums()
        values = self._rates.per_second({"cpu/processes": cpu_ticks / _CLOCK_TICKS})
        values["memory/processes"] = float(pages * _PAGE_BYTES)
        if rescan:
            values["memory/processes_anonymous"] = float(self._anonymous_pages() * _PAGE_BYTES)
        return values

    def _sums(self) -> tuple[int, int]:
        """Return CPU ticks and resident pages of all, and forget who has ended.

        Parents come before their children.
        """
        cpu_ticks = pages = 0
        for pid, stat in list(self._stats.items()):
            try:
                fields = stat.read().rsplit(b")", 1)[1].split(None, 22)
            except OSError:
                if pid == self._pid:
                    raise
                del self._stats[pid]
                continue
            # proc_pid_stat(5): utime, stime, both of the children that were waited for; resident
            # pages
            cpu_ticks += int(fields[11]) + int(fields[12]) + int(fields[13]) + int(fields[14])
            pages += int(fields[21])
        return cpu_ticks, pages

    def _find_children(self, everywhere: bool) -> None:
        """Look at the main thread's children, or at all threads of all processes.

        Who has a new child may soon have grandchildren.
        """
        pids = (
            descendants(self._pid, self._proc)
            if everywhere
            else _children_of_thread(self._proc, self._pid, self._pid)
        )
        new = [pid for pid in pids if pid not in self._stats]
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
    """Return all processes below ``pid``, parents before children.

    Those that start or end meanwhile may be missing.
    """
    children = (
        _children_by_thread
        if os.path.exists(f"{proc}/{pid}/task/{pid}/children")
        else _children_by_parent(proc)
    )
    below, seen = [], [pid]
    for parent in seen:
        new = [child for child in children(proc, parent) if child not in seen]
        seen += new
        below += new
    return below


def _children_of_thread(proc: str, pid: int, thread: int) -> list[int]:
    """Return the children started by one thread.

    It is empty if the kernel does not provide it (it needs CONFIG_PROC_CHILDREN).
    """
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
    """Ask every process for its parent.

    It is the slow way, for kernels that do not list children.
    """
    children: dict[int, list[int]] = {}
    for entry in os.listdir(proc):
        if entry.isdecimal():
            try:
                parent = int(read_file(f"{proc}/{entry}/stat").rsplit(b")", 1)[1].split()[1])
            except (OSError, IndexError):
                continue
            children.setdefault(parent, []).append(int(entry))
    return lambda _, pid: children.get(pid, [])


_VARIABLE = b"FEEDLINE_RUN="
_TORCH_LIBRARY = b"/libtorch_cpu.so"
# readings after which a process is looked at: reading its mappings takes milliseconds
_LOOK_AGES = (1, 3, 10, 30, 100, 300, 1000)


class UnfollowedProcesses(GaugeSource):
    """Writes their names into the run folder. Provides no gauges.

    Args:
        run: the run folder.
        record_argv: which arguments to keep: ``all``, ``masked`` or ``none``.
    """

    name = "unfollowed"

    def __init__(self, run: Path, record_argv: str = "masked") -> None:
        super().__init__()
        self._run, self._record_argv, self._pid = run, record_argv, os.getpid()
        self._ages: dict[int, int] = {}
        self._starts = {_environment_at(self._pid)}

    def prepare(self) -> str | None:
        return None

    def read(self) -> dict[str, float]:
        here = descendants(self._pid)
        self._ages = {pid: self._ages.get(pid, 0) + 1 for pid in here}
        for pid in here:
            if self._ages[pid] in _LOOK_AGES and _TORCH_LIBRARY in proc.read(pid, "maps"):
                self._ages[pid] = max(_LOOK_AGES)  # not again
                self._look(pid)
        return {}

    def _look(self, pid: int) -> None:
        start = _environment_at(pid)
        if start in self._starts:  # a fork of a process that was looked at: its start is that one's
            return
        self._starts.add(start)
        command = _command(pid)
        if not command:
            return
        if any(process.pid == pid for process in process_log.read(self._run)):
            return
        environ = proc.read(pid, "environ").split(b"\0")
        if not any(variable.startswith(_VARIABLE) for variable in environ):
            why = "its environment was replaced"
        elif any(
            "S" in word and not word.startswith(("--", "-W", "-X"))
            for word in command[1 : len(command) - len(_script(command))]
        ):
            why = "python -S runs no start-up hooks"
        else:
            why = "its Python has no feedline, or it may not write to the run folder"
        shown = privacy.recorded_argv(_script(command), self._record_argv)
        line: LineShape = {
            "pid": pid,
            "started": proc.started(pid),
            "command": shown,
            "unseen": why,
        }
        process_log.write(self._run, line)


def _environment_at(pid: int) -> bytes:
    """Return where its environment begins in its memory (proc_pid_stat(5), env_start).

    Every exec chooses another place at random.
    """
    fields = proc.stat(pid)
    return fields[47] if len(fields) > 47 else b""


def _command(pid: int) -> list[str]:
    """Return the words of a process's command line; none if there is no such process.

    One that replaced it by a title (setproctitle) has a single word, with blanks between the words
    of the title.
    """
    words = proc.read(pid, "cmdline").rstrip(b"\0").decode(errors="replace").split("\0")
    return words[0].split() if len(words) == 1 else words


def _script(command: list[str]) -> list[str]:
    """Return a command line without its interpreter and the interpreter's options.

    A title begins with what the program likes, such as ``trainer:``.
    """
    if "python" not in os.path.basename(command[0]):
        return command
    rest = command[1:]
    while len(rest) > 1 and rest[0].startswith("-") and rest[0] not in ("-c", "-m"):
        rest = rest[1:]
    return rest or command
