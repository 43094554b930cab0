"""The helper: a process that samples the stacks of a training's processes until it ends.

It is no child of the training (it forks once at its start), has none of its files and no terminal,
and ends with the training, however that ends.
"""

import ctypes
import json
import os
import random
import select
import signal
import sys
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import chain, count
from pathlib import Path
from types import FrameType
from typing import Any

from feedline.profiler import masks, proc
from feedline.profiler.errors import OutputError
from feedline.profiler.files import owned
from feedline.profiler.stacks.interpreter_layout import Layout
from feedline.profiler.stacks.memory_access import ProcessMemory
from feedline.profiler.stacks.ration import Ration, run_soon_after_waking
from feedline.profiler.stacks.targets import END, TARGETS
from feedline.profiler.stacks.thread_stacks import Place, StackReader, Torn
from feedline.profiler.store.stack_format import LOG, MAGIC, MOST_WRITTEN, SCHEMA

_US = 1000
_TAP = " (feedline; "  # begins what a tap adds to the name of a file (taps/patch.py)
_LOOK_NS = 200_000_000  # at most between two looks for new processes and threads
_RATION_NS = 2_000_000_000
_FORGET_NS = 60_000_000_000
_EARLY_NS, _LONG_NS = 20_000_000_000, 600_000_000_000
#: How long a stretch is that is written in one piece: early, later, in a long run.
_GROUPS_NS = 250_000_000, 5_000_000_000, 30_000_000_000
_MAX_FAILED = 50  # samples of a process one after another, before it is given up
_PATIENCE_NS = 5_000_000_000  # until a process has allowed its memory to be read
_IDLE_NS = 30_000_000_000  # without any process to sample: the helper ends
_PIN = "_pin_memory_loop"
_OTHERS = 4  # the main thread's samples, to one of the other threads
_IN_MODIFY, _IN_CREATE = 0x2, 0x100  # of inotify(7)
_EVENTS_BYTES = 4096
_now = time.perf_counter_ns


@dataclass
class _SampledProcess:
    """A process that is sampled.

    Attributes:
        number: in the log.
        state: address of its main thread's state.
        ours: native ids of threads that are feedline's own.
        due_ns: of the next sample.
        main_ns, others_ns: of the last sample of the main thread, and of the others.
        met_ns: when the helper learned of it.
        readable: whether its memory was ever read.
        failed: samples that failed, one after another.
    """

    number: int
    pid: int
    started: int
    stacks: StackReader
    state: int
    ours: frozenset[int]
    due_ns: int
    main_ns: int
    others_ns: int
    met_ns: int
    readable: bool = False
    failed: int = 0


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
        self._changes = _FolderWatch(folder)
        self._ended = False
        self._processes: dict[str, _SampledProcess] = {}
        self._spent_s = time.process_time()
        self._ration, self._random = Ration(rate, spent_s=self._spent_s), random.Random()
        self._interval_ns = int(1e9 / rate) if rate else 10_000_000
        self._began = self._group = self._looked = self._rationed = self._forgot = _now()
        self._busy = self._began  # when there was a process last
        self._stacks = self._rounds = 0

    def run(self) -> None:
        """Sample until the end. Raises OSError, LogFull."""
        signal.signal(signal.SIGTERM, self._terminated)
        if self._is_over():
            return
        self._log = _StackLog(self._folder)
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
        due = min((process.due_ns for process in self._processes.values()), default=1 << 62)
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
        self._ration.measured(spent - self._spent_s, self._stacks)
        pids = [process.pid for process in self._processes.values()]
        threads = self._stacks / max(self._rounds, 1) * len(pids)
        interval = self._ration.interval_s(
            (now - self._began) * 1e-9, (now - self._rationed) * 1e-9, pids, threads
        )
        self._interval_ns = int(interval * 1e9)
        self._spent_s, self._stacks, self._rounds, self._rationed = spent, 0, 0, now

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
        stacks = StackReader(ProcessMemory(pid), self._layout, int(said["code_type"]))
        self._write(now)  # what came before it ends here
        self._processes[name] = _SampledProcess(
            self._log.process(name, pid),
            pid,
            started,
            stacks,
            int(said["state"]),
            frozenset(map(int, said["ours"])),
            now + int(self._random.random() * self._interval_ns),
            *(now, now, now),
        )

    def _sample(self, now: int) -> None:
        for name, process in list(self._processes.items()):
            if process.due_ns <= now:
                self._sample_process(name, process)

    def _sample_process(self, name: str, process: _SampledProcess) -> None:
        """Sample the main thread, and now and then the others at the same moment."""
        now = _now()
        draw = int((0.5 + self._random.random()) * self._interval_ns)
        process.due_ns = max(process.due_ns + draw, now + draw // 2)
        self._rounds += 1
        try:
            self._sample_thread(process, process.pid, process.state, now - process.main_ns)
            process.readable, process.main_ns, process.failed = True, now, 0
            if self._random.random() < 1 / _OTHERS:
                for native, state in process.stacks.threads(process.state)[1:]:
                    if native not in process.ours:
                        self._sample_thread(process, native, state, now - process.others_ns)
                process.others_ns = now
        except Torn:
            return
        except (LookupError, OSError) as error:
            self._unreadable(name, process, error, now)

    def _sample_thread(self, process: _SampledProcess, native: int, state: int, ns: int) -> None:
        """Count the stack of a thread; of one that runs no Python code, nothing.

        Raises:
            Torn, LookupError, OSError: as of StackReader.stack; of the main thread only.
        """
        try:
            stack = process.stacks.stack(native, state)
        except (Torn, LookupError, OSError):
            if native == process.pid:
                raise
            return  # it has just ended
        self._stacks += 1
        if stack:
            moment = _now() if native == self._pid else 0  # of the training's own thread
            self._log.add(process.number, _kind(process, native, stack), stack, ns, moment)

    def _unreadable(self, name: str, process: _SampledProcess, error: Exception, now: int) -> None:
        """Forget a process that has ended, became another program, or must not be read.

        A stack that changed while it was read is no sign of that, unless it happens each time.
        """
        forbidden = isinstance(error, PermissionError) and not process.readable
        if forbidden and now - process.met_ns < _PATIENCE_NS:
            return
        process.failed += 1
        lives = proc.started(process.pid) == process.started
        if not forbidden and lives and process.failed < _MAX_FAILED:
            return
        if forbidden:
            self._log.refuse(process.number, "the system does not let its memory be read")
        self._processes.pop(name)


def _kind(process: _SampledProcess, native: int, stack: Sequence[Place]) -> str:
    if native == process.pid:
        return "main"
    return "pin_memory" if any(place.function == _PIN for place in stack) else "other"


def main(arguments: list[str]) -> None:
    """Become the helper: folder of the rank, pid and start of the training, layout, rate."""
    folder, pid, started, layout, rate = arguments
    found = Layout.of_json(json.loads(layout))
    if os.fork():
        os._exit(0)
    # away from the terminal's signals; in a session of its own, autogroup (sched(7)) would let it wait
    # for programs that compute, and it would see those that sleep too often
    os.setpgid(0, 0)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    run_soon_after_waking(os.nice(0))
    with suppress(OSError, _LogFull, OutputError):
        _Helper(Path(folder), int(pid), int(started), found, float(rate)).run()
    with suppress(OSError):
        owned.discard(Path(folder), TARGETS)
    sys.exit(0)


class _StackLog:
    """The log of a rank.

    Args:
        folder: of the rank.

    Raises:
        OSError: it exists, or cannot be made.
    """

    def __init__(self, folder: Path) -> None:
        self._file = owned.create(folder, LOG)
        self._lines: list[str] = []
        self._written = 0
        self._processes = 0
        self._files: dict[str, str] = {}
        self._masked: dict[str, str] = {}  # name -> file
        self._frames: dict[Place, int] = {}
        self._stacks: dict[tuple[int, str, tuple[Place, ...]], int] = {}
        self._counts: dict[int, list[int]] = {}
        self._moments: dict[int, list[int]] = {}
        self._line(f"{MAGIC} {SCHEMA} {os.getpid()}")
        self.flush()

    def process(self, name: str, pid: int) -> int:
        """Return the number of a new process."""
        self._line("p", _plain(name), pid)
        self._processes += 1
        return self._processes - 1

    def refuse(self, process: int, why: str) -> None:
        """Note why not all of a process is there."""
        self._line("r", process, _plain(why))

    def add(
        self, process: int, thread: str, stack: tuple[Place, ...], ns: int, moment: int = 0
    ) -> None:
        """Count a stack, innermost frame first, that stands for some nanoseconds.

        Args:
            moment: when it was seen, ns, where that is kept; 0: it is not.
        """
        key = process, thread, stack
        number = self._stacks.get(key)
        if number is None:
            number = self._stacks[key] = len(self._stacks)
            frames = [self._frame(place) for place in reversed(stack)]
            self._line("s", process, thread, ",".join(map(str, frames)))
        count = self._counts.setdefault(number, [0, 0])
        count[0] += 1
        count[1] += ns
        if moment:
            self._moments.setdefault(number, []).append(moment)

    def group(self, begin: int, end: int) -> None:
        """Write what was counted, as seen between two moments.

        Raises:
            OSError: the disk is full.
            LogFull: the file has reached its size.
        """
        if self._counts:
            self._line("g", begin, end)
            for number, (samples, ns) in self._counts.items():
                self._line("c", number, samples, ns)
                if moments := self._moments.get(number):
                    since = [(moment - begin) // _US for moment in moments if moment >= begin]
                    self._line("m", ",".join(map(str, since)))
            self._counts.clear()
            self._moments.clear()
        self.flush()
        if self._written > MOST_WRITTEN:
            for process in range(self._processes):
                self.refuse(process, "sampled until the file was full")
            self.flush()
            raise _LogFull

    def end(self) -> None:
        """Write that the recording has ended. Raises OSError."""
        self._line("e")
        self.flush()

    def flush(self) -> None:
        data = "".join(self._lines).encode("utf-8", "backslashreplace")
        self._lines.clear()
        while data:
            written = os.write(self._file, data)
            self._written += written
            data = data[written:]

    def _frame(self, place: Place) -> int:
        number = self._frames.get(place)
        if number is None:
            number = self._frames[place] = len(self._frames)
            file = self._files.get(place.file)
            if file is None:
                file = self._files[place.file] = self._name(place.file)
                self._state(place.file, file)
            self._line("f", place.line, _plain(place.function), file)
        return number

    def _name(self, file: str) -> str:
        """Return what the log calls a file: of several that are masked alike, each has a number."""
        name = _plain(_shown(file))
        before, masked, below = name.rpartition(f"{masks.MASK}/")
        if not masked:
            return name
        real = os.path.normpath(file)  # without the working directory, which may be gone
        names = chain([name], (f"{before}{masked}{number}/{below}" for number in count(2)))
        return next(name for name in names if self._masked.setdefault(name, real) == real)

    def _state(self, file: str, named: str) -> None:
        """Write how a file of the program is now, so that a changed one is told from it later."""
        if not file.endswith(".py") or masks.library(file):
            return
        with suppress(OSError, ValueError):
            about = os.stat(file)
            self._line("w", about.st_mtime_ns, about.st_size, named)

    def _line(self, *words: object) -> None:
        self._lines.append("\t".join(map(str, words)) + "\n")


def _plain(text: str) -> str:
    return " ".join(text.split())


def _shown(file: str) -> str:
    """Return a file of code as the run folder has it: masked; feedline's own as if installed."""
    plain, tap, rest = file.partition(_TAP)
    ours = masks.place_in_feedline(plain)
    if ours:
        return f"site-packages/feedline/{ours}{tap}{rest}"
    if plain.startswith("<"):
        return masks.token(file)
    return masks.source(plain) + tap + rest


class _FolderWatch:
    """Waits for a change in a folder (inotify(7)).

    Where the kernel or a file system tells of none, only for the time.
    """

    def __init__(self, folder: Path) -> None:
        libc = ctypes.CDLL(None)
        self._file = libc.inotify_init1(os.O_NONBLOCK | os.O_CLOEXEC)
        if self._file >= 0:
            libc.inotify_add_watch(self._file, os.fsencode(folder), _IN_MODIFY | _IN_CREATE)

    def wait(self, seconds: float) -> bool:
        """Wait for at most that long; return whether something has changed."""
        files = [self._file] if self._file >= 0 else []
        changed = bool(select.select(files, [], [], max(0.0, seconds))[0])
        if changed:
            with suppress(BlockingIOError):
                os.read(self._file, _EVENTS_BYTES)
        return changed


class _LogFull(Exception):
    """The log has reached its size."""
