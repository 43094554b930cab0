"""Samples the stacks of processes that run the Python that feedline runs, out of their memory."""

import random
import time
from collections.abc import Iterable
from dataclasses import dataclass, field

from feedline.profiler.attach import kernel
from feedline.profiler.attach.same_python import SamePython
from feedline.profiler.attach.watched import SeenStack, WatchedThread
from feedline.profiler.stacks.memory_access import ProcessMemory
from feedline.profiler.stacks.ration import Ration
from feedline.profiler.stacks.thread_stacks import Place, StackReader, Torn

#: Of the CPU time of what is watched: reading it may take this much.
_SHARE = 0.006
_RATION_S = 1.0
_LONGEST_S, _FEW_THREADS = 0.1, 8  # between two readings, with so many threads; more take longer
_OTHERS = 4  # threads beside the main thread are read each time of this many
_MOST_THREADS = 16  # of a process
NAME = "feedline"
_Frames = tuple[Place, ...]


@dataclass
class _Thread:
    """What was seen of a thread."""

    counts: dict[_Frames, list[float]] = field(default_factory=dict)
    last: _Frames = ()

    def add(self, frames: _Frames, seconds: float) -> None:
        count = self.counts.setdefault(frames, [0, 0.0])
        count[0] += 1
        count[1] += seconds
        self.last = frames


@dataclass
class _Process:
    """A process that is read."""

    pid: int
    begin: int
    own: int
    memory: ProcessMemory
    reader: StackReader
    due_s: float
    main_s: float  # when its main thread was read last; at first when it was met
    all_s: float  # the same of all its threads: one that is new had not begun then
    readings: int = 0
    living: int = 1  # threads that are read; more may have been
    threads: dict[int, _Thread] = field(default_factory=dict)

    @property
    def load(self) -> float:
        """How many threads are read each time, on average."""
        return 1 + max(0, self.living - 1) / _OTHERS


class MemoryReader:
    """Reads stacks until it is told to end.

    Raises:
        UnknownLayout: this Python keeps its stacks in a way that is not known.
        OSError: this process must not even read its own memory.
    """

    def __init__(self) -> None:
        self._python = SamePython.find()
        self._processes: dict[int, _Process] = {}
        self._ration, self._random = Ration(early_share=_SHARE, share=_SHARE), random.Random()
        self._interval_s = 0.02
        self._began_s = self._rationed_s = time.monotonic()
        self._spent_s, self._samples = 0.0, 0

    def meet(self, pid: int) -> None:
        """Read a process from now on.

        Raises:
            OtherPython: it runs another Python.
            OSError: it has ended, or must not be read.
        """
        begin = self._python.begin_in(pid)
        memory = ProcessMemory(pid)
        self._python.threads(memory, begin)
        reader = StackReader(memory, self._python.layout, begin + self._python.code_type)
        now = time.monotonic()
        due = now + self._random.random() * self._interval_s
        own = kernel.own_number(pid)
        self._processes[pid] = _Process(pid, begin, own, memory, reader, due, now, now)

    def begun(self, pids: Iterable[int]) -> None:
        """Nothing: processes are read as they are met."""

    def read_until(self, end_s: float) -> None:
        """Read what is due until a moment of ``time.monotonic``."""
        if (now := time.monotonic()) - self._rationed_s >= _RATION_S:
            self._set_interval(now)
        spent_s = time.process_time()
        while (now := time.monotonic()) < end_s:
            for process in list(self._processes.values()):
                if process.due_s <= now:
                    draw = (0.5 + self._random.random()) * self._interval_s
                    process.due_s = max(process.due_s + draw, now + draw / 2)
                    self._read(process)
            due = min((process.due_s for process in self._processes.values()), default=end_s)
            time.sleep(max(0.0, min(due, end_s) - time.monotonic()))
        self._spent_s += time.process_time() - spent_s

    def threads(self, pid: int) -> tuple[WatchedThread, ...]:
        """Return what was seen of a process."""
        process = self._processes.get(pid)
        if process is None:
            return ()
        return tuple(
            WatchedThread(
                process.pid if own == process.own else kernel.thread(pid, own),
                own == process.own,
                tuple(SeenStack(key, int(n), s) for key, (n, s) in thread.counts.items()),
                thread.last,
            )
            for own, thread in process.threads.items()
            if thread.counts
        )

    def end(self) -> None:
        """Nothing is left to do."""

    def _set_interval(self, now: float) -> None:
        self._ration.measured(self._spent_s, self._samples)
        threads = max(1.0, sum(process.load for process in self._processes.values()))
        pids, since_s = list(self._processes), now - self._rationed_s
        interval_s = self._ration.interval_s(now - self._began_s, since_s, pids, round(threads))
        self._interval_s = min(interval_s, _LONGEST_S * max(1.0, threads / _FEW_THREADS))
        self._spent_s, self._samples, self._rationed_s = 0.0, 0, now

    def _read(self, process: _Process) -> None:
        process.readings += 1
        try:
            states = self._python.threads(process.memory, process.begin)
        except OSError:
            return  # it has ended
        all_of_them = process.readings % _OTHERS == 1
        states, now = states[-_MOST_THREADS:], time.monotonic()
        process.living = len(states)
        for state in states:
            try:
                self._read_thread(process, state, now, all_of_them)
            except (Torn, LookupError, OSError):
                continue
        if all_of_them:
            process.all_s = now

    def _read_thread(self, process: _Process, state: int, now: float, any_thread: bool) -> None:
        word = self._python.layout.state_thread_words
        own = process.memory.words(state, word + 1)[-1]
        if own != process.own and not any_thread:
            return
        frames = tuple(reversed(process.reader.stack(own, state)))
        self._samples += 1
        since_s = process.all_s
        if own == process.own:
            since_s, process.main_s = process.main_s, now
        if frames:
            process.threads.setdefault(own, _Thread()).add(frames, now - since_s)
