"""CPU time and memory of this process and all of its descendants.

Memory is also told apart by worker. It finds those among them that are not recorded. A process that uses torch does not record itself
where its environment was cleared, for example.
"""

import os
import signal
import sys
import threading
import weakref
from collections.abc import Callable, Container, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from feedline.profiler import clock, proc
from feedline.profiler.record import privacy
from feedline.profiler.samplers.source import GaugeSource, OpenFile, Rates, read_file
from feedline.profiler.store import process_log

if TYPE_CHECKING:
    from feedline.profiler.store.shapes import LineShape


_RESCAN_TICKS = 20  # looking through all threads for children costs some 10 us a thread
_CLOCK_TICKS = os.sysconf("SC_CLK_TCK")
_PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")
_VARIABLE = b"FEEDLINE_RUN="
_TORCH_LIBRARY = b"/libtorch_cpu.so"
# readings after which a process is looked at: reading its mappings takes milliseconds
_LOOK_AGES = (1, 3, 10, 30, 100, 300, 1000)
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


class ProcessTree(GaugeSource):
    """The processes below the one that probes.

    cpu/processes: CPU seconds per second. Children that have ended count through their parent; one
    that another thread started is found up
        to _RESCAN_TICKS readings late, and its CPU time until then is booked at once.
    memory/processes: resident bytes, summed; a page that several share counts for each.
    memory/processes_anonymous: the same without files and shared memory, once in _RESCAN_TICKS
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

    def killed(self, left_out: Container[int] = ()) -> int:
        """Return the pid of a worker of the last ones that a SIGKILL has ended; 0: none was.

        Args:
            left_out: pids of workers that do not count.
        """
        for known in list(self._workers.values()):
            worker = known()
            with suppress(Exception):  # of another process, after a fork
                if worker is None or worker.pid in left_out:
                    continue
                if worker.exitcode == -signal.SIGKILL:
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
