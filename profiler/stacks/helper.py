"""The helper: a process that samples the stacks of a training's processes until it ends.

It is no child of the training (it forks once at its start), has none of its files and no terminal,
and ends with the training, however that ends.
"""

import json
import os
import random
import signal
import sys
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from types import FrameType
from typing import Any

from feedline.profiler import proc
from feedline.profiler.errors import OutputError
from feedline.profiler.files import owned
from feedline.profiler.stacks.file_watch import FolderWatch
from feedline.profiler.stacks.layout import Layout
from feedline.profiler.stacks.process_memory import ProcessMemory
from feedline.profiler.stacks.ration import Ration
from feedline.profiler.stacks.short_slice import ask_for_short_slices
from feedline.profiler.stacks.stack_log import LogFull, StackLog
from feedline.profiler.stacks.targets import END, TARGETS
from feedline.profiler.stacks.thread_stacks import Place, StackReader, Torn

_LOOK_NS = 200_000_000  # at most between two looks for new processes and threads
_RATION_NS = 2_000_000_000
_FORGET_NS = 60_000_000_000
_EARLY_NS, _LONG_NS = 20_000_000_000, 600_000_000_000
#: How long a stretch is that is written in one piece: early, later, in a long run.
_GROUPS_NS = 250_000_000, 5_000_000_000, 30_000_000_000
_PATIENCE_NS = 5_000_000_000  # until a process has allowed its memory to be read
_IDLE_NS = 30_000_000_000  # without any process to sample: the helper ends
_EMPTY = 20  # readings without a frame, after which a thread is none of Python's
_PIN = "_pin_memory_loop"
_MOST_THREADS = 16  # of a process
_OTHERS = 4  # times as long between two samples of threads that are not the main thread


@dataclass
class _Thread:
    """A thread that is sampled.

    Attributes:
        state: address of its state.
        due_ns: of the next sample.
        last_ns: of the last one, or when it was met.
        empty: how often in a row it ran no Python code.
    """

    state: int
    due_ns: int
    last_ns: int
    empty: int = 0


@dataclass
class _Process:
    """A process that is sampled."""

    number: int
    pid: int
    started: int
    stacks: StackReader
    memory: ProcessMemory
    met_ns: int
    readable: bool = False
    threads: dict[int, _Thread] = field(default_factory=dict)
    ours: set[int] = field(default_factory=set)


class _Helper:
    """Samples until the recording ends.

    Args:
        folder: of the rank.
        pid, started: of the training.
        layout: of its Python.
        rate: as of Ration.
    """

    def __init__(self, folder: Path, pid: int, started: int, layout: Layout, rate: float) -> None:
        self._pid, self._started, self._layout = pid, started, layout
        self._folder, self._targets = folder, folder / TARGETS
        self._read = 0  # bytes of that file
        self._changes = FolderWatch(folder)
        self._ended = False
        self._processes: dict[str, _Process] = {}
        self._ration, self._random = Ration(rate), random.Random()
        self._interval_ns = int(1e9 / rate) if rate else 10_000_000
        self._began = self._group = self._looked = self._rationed = self._forgot = _now()
        self._busy = self._began  # when there was a process last
        self._samples = 0
        self._spent_s = time.process_time()

    def run(self) -> None:
        """Sample until the end. Raises OSError, LogFull."""
        signal.signal(signal.SIGTERM, self._terminated)
        if self._is_over():
            return
        self._log = StackLog(self._folder)
        while not self._ended:
            now = _now()
            if now - self._looked >= _LOOK_NS:
                self._look(now)
            self._sample(now)
            if now - self._group >= self._group_ns(now):
                self._write(now)
            self._sleep()
        now = _now()
        self._sample(now)
        self._write(now)
        self._log.end()

    def _is_over(self) -> bool:
        """Return whether the recording ended before the helper was there."""
        try:
            return f'"{END}"'.encode() in self._targets.read_bytes()
        except FileNotFoundError:
            return False

    def _terminated(self, number: int, frame: FrameType | None) -> None:
        self._ended = True

    def _group_ns(self, now: int) -> int:
        age = now - self._began
        return _GROUPS_NS[(age > _EARLY_NS) + (age > _LONG_NS)]

    def _write(self, now: int) -> None:
        self._log.group(self._group, now)
        self._group = now

    def _sleep(self) -> None:
        due = min(
            (thread.due_ns for own in self._processes.values() for thread in own.threads.values()),
            default=self._looked + _LOOK_NS,
        )
        wait = min(due, self._looked + _LOOK_NS) - _now()
        if self._changes.wait(wait * 1e-9):
            self._hear(_now())

    def _look(self, now: int) -> None:
        """Look for the end, for new processes and threads, and at what samples cost."""
        self._looked = now
        self._ended |= proc.started(self._pid) != self._started
        self._hear(now)
        for name, process in list(self._processes.items()):
            if proc.started(process.pid) != process.started:
                self._processes.pop(name)
        if self._processes:
            self._busy = now
        self._ended |= now - self._busy > _IDLE_NS
        if now - self._rationed >= _RATION_NS:
            self._set_interval(now)
        if now - self._forgot >= _FORGET_NS:
            self._forgot = now
            for process in self._processes.values():
                process.stacks.forget()

    def _set_interval(self, now: int) -> None:
        spent = time.process_time()
        self._ration.measured(spent - self._spent_s, self._samples)
        pids = [process.pid for process in self._processes.values()]
        threads = sum(1 + (len(own.threads) - 1) / _OTHERS for own in self._processes.values())
        interval = self._ration.interval_s(
            (now - self._began) * 1e-9, (now - self._rationed) * 1e-9, pids, threads
        )
        self._interval_ns = int(interval * 1e9)
        self._spent_s, self._samples, self._rationed = spent, 0, now

    def _hear(self, now: int) -> None:
        """Read what the processes tell."""
        try:
            if os.stat(self._targets).st_size <= self._read:
                return
        except FileNotFoundError:
            return
        with open(self._targets, "rb") as file:
            file.seek(self._read)
            data = file.read()
        complete = data[: data.rfind(b"\n") + 1]
        self._read += len(complete)
        for line in complete.splitlines():
            with suppress(ValueError, LookupError, TypeError):
                said = json.loads(line)
                if END in said:
                    self._ended = True
                else:
                    self._meet(said, now)

    def _meet(self, said: dict[str, Any], now: int) -> None:
        name, pid, started = str(said["name"]), int(said["pid"]), int(said["started"])
        process = self._processes.get(name)
        if process is None or (process.pid, process.started) != (pid, started):
            memory = ProcessMemory(pid)
            stacks = StackReader(memory, self._layout, int(said["code_type"]))
            self._write(now)  # what came before it ends here
            number = self._log.process(name, pid)
            process = self._processes[name] = _Process(number, pid, started, stacks, memory, now)
        process.ours = set(map(int, said["ours"]))
        self._threads(process, [int(state) for state in said["states"]], now)

    def _threads(self, process: _Process, states: Sequence[int], now: int) -> None:
        """Learn which threads a process has."""
        before = {thread.state: thread for thread in process.threads.values()}
        process.threads = {}
        for state in states[-_MOST_THREADS:]:  # the main thread is the last
            try:
                native = process.memory.words(state, self._layout.state_thread_words + 1)[-1]
                process.readable = True
            except OSError:
                if process.readable:
                    continue
                native = -state  # it is not allowed yet
            if native not in process.ours:
                due = now + int(self._random.random() * self._interval_ns)
                process.threads[native] = before.get(state) or _Thread(state, due, now)

    def _sample(self, now: int) -> None:
        for process in list(self._processes.values()):
            for native, thread in list(process.threads.items()):
                if thread.due_ns <= now:
                    self._sample_thread(process, native, thread)

    def _sample_thread(self, process: _Process, native: int, thread: _Thread) -> None:
        now = _now()
        draw = int((0.5 + self._random.random()) * self._interval_ns)
        draw *= 1 if native == process.pid else _OTHERS
        thread.due_ns = max(thread.due_ns + draw, now + draw // 2)
        try:
            if native < 0:
                self._threads(process, [one.state for one in process.threads.values()], now)
                if not process.readable:
                    raise PermissionError
                return
            stack = process.stacks.stack(native, thread.state)
        except Torn:
            return
        except LookupError:
            process.threads.pop(native, None)
        except OSError:
            self._unreadable(process, native, now)
        else:
            self._samples += 1
            self._count(process, native, thread, stack, now)

    def _count(
        self, process: _Process, native: int, thread: _Thread, stack: tuple[Place, ...], now: int
    ) -> None:
        if not stack:
            thread.empty += 1
            if thread.empty >= _EMPTY and native != process.pid:
                process.threads.pop(native, None)
            return
        thread.empty = 0
        self._log.add(process.number, _kind(process, native, stack), stack, now - thread.last_ns)
        thread.last_ns = now

    def _unreadable(self, process: _Process, native: int, now: int) -> None:
        """A thread's memory cannot be read: it, or its process, has ended; or it is forbidden."""
        if process.readable:
            process.threads.pop(native, None)
        elif now - process.met_ns > _PATIENCE_NS:
            self._log.refuse(process.number, "the system does not let its memory be read")
            process.threads.clear()


def _kind(process: _Process, native: int, stack: Sequence[Place]) -> str:
    if native == process.pid:
        return "main"
    return "pin_memory" if any(place.function == _PIN for place in stack) else "other"


_now = time.perf_counter_ns


def main(arguments: list[str]) -> None:
    """Become the helper: folder of the rank, pid and start of the training, layout, rate."""
    folder, pid, started, layout, rate = arguments
    found = Layout.of_json(json.loads(layout))
    if os.fork():
        os._exit(0)
    os.setsid()
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    ask_for_short_slices(os.nice(0))
    with suppress(OSError, LogFull, OutputError):
        _Helper(Path(folder), int(pid), int(started), found, float(rate)).run()
    with suppress(OSError):
        owned.discard(Path(folder), TARGETS)
    sys.exit(0)
