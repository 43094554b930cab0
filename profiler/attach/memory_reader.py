"""Samples the stacks of processes that run the Python that feedline runs, out of their memory."""

import bisect
import ctypes
import os
import random
import struct
import threading
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from feedline.profiler import proc
from feedline.profiler.attach import kernel
from feedline.profiler.attach.watched import SeenStack, WatchedThread
from feedline.profiler.stacks.interpreter_layout import (
    Layout,
    UnknownLayout,
    c_function,
    code_type,
    find_layout,
    thread_states,
)
from feedline.profiler.stacks.memory_access import ProcessMemory
from feedline.profiler.stacks.ration import Ration
from feedline.profiler.stacks.thread_stacks import Place, StackReader, Torn

_RUNTIME_BYTES, _INTERPRETER_BYTES, _STATE_BYTES = 1 << 14, 1 << 16, 768
_MOST_IN_LIST = 1000
#: Of the CPU time of what is watched: reading it may take this much.
_SHARE = 0.006
_RATION_S = 1.0
_LONGEST_S, _FEW_THREADS = 0.1, 8  # between two readings, with so many threads; more take longer
_OTHERS = 4  # threads beside the main thread are read each time of this many
_MOST_THREADS = 16  # of a process
NAME = "feedline"
_Frames = tuple[Place, ...]


class OtherPython(Exception):
    """A process runs another Python than this one, or none."""


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
        self._python = _SamePython.find()
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


@dataclass(frozen=True)
class _SamePython:
    """The Python of feedline's process, as it is found in others.

    Attributes:
        layout: of its frames.
        file: device and number of the file that holds its data.
        runtime: distance of the runtime from the file's beginning, bytes.
        code_type: the same of the type of code objects.
        interpreter_word: of the runtime: the main interpreter.
        first_word: of an interpreter: the state of its newest thread.
        next_word: of that: the state of the next one.
    """

    layout: Layout
    file: tuple[str, str]
    runtime: int
    code_type: int
    interpreter_word: int
    first_word: int
    next_word: int

    @classmethod
    def find(cls) -> "_SamePython":
        """Return what is known of this process's Python.

        Raises:
            UnknownLayout: not all of it was found.
            OSError: this process must not read its own memory.
        """
        layout, ended = find_layout(), threading.Event()
        others = [threading.Thread(target=ended.wait, daemon=True) for _ in range(2)]
        for thread in others:
            thread.start()
        try:
            return cls._looked_up(layout)
        except (ValueError, AttributeError, LookupError, StopIteration) as error:
            raise UnknownLayout("the threads of this Python are not found") from error
        finally:
            ended.set()
            for thread in others:
                thread.join()

    @classmethod
    def _looked_up(cls, layout: Layout) -> "_SamePython":
        memory = ProcessMemory(os.getpid())
        runtime = ctypes.addressof(ctypes.c_char.in_dll(ctypes.pythonapi, "_PyRuntime"))
        interpreter, states = c_function("PyInterpreterState_Main")(), thread_states()
        mapped = _mapped_at(os.getpid(), runtime)
        found = cls(
            layout,
            mapped.file,
            runtime - mapped.begin,
            code_type() - mapped.begin,
            _words(memory, runtime, _RUNTIME_BYTES).index(interpreter),
            _words(memory, interpreter, _INTERPRETER_BYTES).index(states[0]),
            _following(memory, states),
        )
        if found.threads(memory, mapped.begin) != states:
            raise LookupError("threads")
        return found

    def begin_in(self, pid: int) -> int:
        """Return where the Python's file begins in another process.

        Raises:
            OtherPython: it has not mapped it.
        """
        for mapped in _mapped(pid):
            if mapped.file == self.file:
                return mapped.begin
        raise OtherPython

    def threads(self, memory: ProcessMemory, begin: int) -> list[int]:
        """Return the addresses of the states of a process's threads, the newest first.

        Args:
            memory: of the process.
            begin: where the Python's file begins in it.

        Raises:
            OSError: the process has ended, or must not be read.
        """
        interpreter = memory.words(begin + self.runtime + 8 * self.interpreter_word, 1)[0]
        state = memory.words(interpreter + 8 * self.first_word, 1)[0]
        states: list[int] = []
        while state and len(states) < _MOST_IN_LIST:
            states.append(state)
            state = memory.words(state + 8 * self.next_word, 1)[0]
        return states


@dataclass(frozen=True)
class _Mapped:
    """A file in a process's memory: its device and number, and where it begins."""

    file: tuple[str, str]
    begin: int


def _words(memory: ProcessMemory, address: int, size: int) -> tuple[int, ...]:
    """Return words of memory up to the page at which it ends."""
    data = bytes(memory.read(address, size))
    return struct.unpack(f"<{len(data) // 8}Q", data[: len(data) // 8 * 8])


def _following(memory: ProcessMemory, states: Sequence[int]) -> int:
    """Return the word of a thread's state that leads to the next one; of the last one, nowhere."""
    rows = [_words(memory, state, _STATE_BYTES) for state in states]
    return next(
        place
        for place in range(min(map(len, rows)))
        if [row[place] for row in rows] == [*states[1:], 0]
    )


def _mapped(pid: int) -> list[_Mapped]:
    """Return the files in a process's memory, by where each begins."""
    begins: dict[tuple[str, str], int] = {}
    for line in proc.read(pid, "maps").decode("utf-8", "replace").splitlines():
        words = line.split(None, 5)
        if len(words) == 6 and words[4] != "0":
            begins.setdefault((words[3], words[4]), int(words[0].partition("-")[0], 16))
    return sorted((_Mapped(file, begin) for file, begin in begins.items()), key=lambda m: m.begin)


def _mapped_at(pid: int, address: int) -> _Mapped:
    """Return the file that an address belongs to: data without content lies behind its file."""
    files = _mapped(pid)
    place = bisect.bisect_right([mapped.begin for mapped in files], address)
    if not place:
        raise LookupError("a file")
    return files[place - 1]
