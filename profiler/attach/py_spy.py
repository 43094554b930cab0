"""Samples stacks with py-spy, of Pythons that are not the one that feedline runs."""

import os
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from feedline.profiler.attach import kernel
from feedline.profiler.attach.watched import SeenStack, WatchedThread
from feedline.profiler.errors import MissingDependency, NotPermitted
from feedline.profiler.files.bounded import one_line
from feedline.profiler.stacks.thread_stacks import Place

NAME = "py-spy"
_RATE = 25  # per second
_PROCESS = re.compile(r'process (\d+):"')
# its number as the process sees it; before Python 3.11 its address, which is hexadecimal
_THREAD = re.compile(r";?thread \((0x[0-9A-Fa-f]+|\d+)\)(?:: ([^;]*))?;")
_FRAME = re.compile(r"(.*) \((.*?)(?::(\d+))?\)")
_START_S = 20.0
_MAIN = "MainThread"  # Python's name of it
_IN_FORK = ("multiprocessing/process.py", "_bootstrap")


@dataclass
class _SeenThread:
    """What py-spy has seen of a thread: whether Python calls it the main one, and its stacks."""

    is_named_main: bool = False
    stacks: dict[tuple[Place, ...], int] = field(default_factory=dict)

    @property
    def is_fork(self) -> bool:
        """Whether it runs what ``multiprocessing`` has started: a process's main thread does."""
        file, function = _IN_FORK
        return any(
            frame.file.endswith(file) and frame.function.rpartition(".")[2] == function
            for frames in self.stacks
            for frame in frames
        )


class PySpy:
    """Runs py-spy beside the training; it reads memory and stops nothing.

    Args:
        seconds: for which it looks.

    Raises:
        MissingDependency: it is not installed.
    """

    def __init__(self, seconds: float) -> None:
        installed = program()
        if installed is None:
            raise MissingDependency(
                "the training runs another Python than feedline, which needs py-spy: "
                "pip install 'feedline[attach]', or install feedline beside the training"
            )
        self._seconds, self._program = seconds, installed
        self._running: list[tuple[int, subprocess.Popen[bytes], int]] = []
        self._own: dict[int, int] = {}
        self._seen: dict[int, dict[str, _SeenThread]] = {}

    def meet(self, pid: int) -> None:
        """Note how a process counts itself; py-spy finds those below which it begins with."""
        self._own[pid] = kernel.own_number(pid)

    def begun(self, pids: Iterable[int]) -> None:
        """Begin with these processes and all below them."""
        for pid in pids:
            written = os.memfd_create("stacks")
            options = ["--subprocesses", "--idle", "--nonblocking", "--threads"]
            command = [
                *(self._program, "record", "--pid", str(pid), *options, "--full-filenames"),
                *("--format", "raw", "--rate", str(_RATE)),
                *("--duration", str(max(1, round(self._seconds)))),
                *("--output", f"/dev/fd/{written}"),
            ]
            process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.PIPE,
                pass_fds=[written],
            )
            self._running.append((pid, process, written))

    def read_until(self, end_s: float) -> None:
        """Wait until a moment of ``time.monotonic``."""
        time.sleep(max(0.0, end_s - time.monotonic()))

    def end(self) -> None:
        """Wait for py-spy, and read what it has seen.

        Raises:
            NotPermitted: it must not read the processes, or cannot.
        """
        for pid, process, written in self._running:
            try:
                _, said = process.communicate(timeout=_START_S)
            except subprocess.TimeoutExpired:
                process.kill()
                _, said = process.communicate()
            with os.fdopen(written, "rb") as file:
                text = file.read().decode("utf-8", "replace")
            if process.returncode and not text:
                why = one_line(said.decode("utf-8", "replace")[:200])
                raise NotPermitted(f"py-spy cannot read process {pid} ({why}): run it as root")
            for line in text.splitlines():
                self._add(line, pid)
        self._running.clear()

    def threads(self, pid: int) -> tuple[WatchedThread, ...]:
        """Return what was seen of a process."""
        seen = self._seen.get(pid, {})
        main = _main_of(seen, self._own.get(pid, pid))
        return tuple(
            _watched(pid if name == main else _number(pid, name), name == main, thread.stacks)
            for name, thread in seen.items()
        )

    def _add(self, line: str, root: int) -> None:
        text, _, count = line.rpartition(" ")
        thread = _THREAD.search(text)
        if thread is None or not count.isdecimal():
            return
        pids = _PROCESS.findall(text[: thread.start()])
        pid = int(pids[-1]) if pids else root
        frames = tuple(map(_place, text[thread.end() :].split(";")))
        seen = self._seen.setdefault(pid, {}).setdefault(thread[1], _SeenThread())
        seen.is_named_main |= thread[2] == _MAIN
        seen.stacks[frames] = seen.stacks.get(frames, 0) + int(count)


def _main_of(seen: Mapping[str, _SeenThread], own: int) -> str:
    """Return the main thread of those that were seen, as py-spy calls it; empty: none is.

    Args:
        own: number of the process and of its main thread, as the process counts.
    """
    if not any(map(_is_address, seen)):
        return str(own) if str(own) in seen else ""
    if len(seen) == 1:
        return next(iter(seen))
    # a fork keeps the name of the thread that forked, with the frames that led to the fork
    likely = [
        *(name for name, thread in seen.items() if thread.is_fork),
        *(name for name, thread in seen.items() if thread.is_named_main),
    ]
    return likely[0] if likely else ""


def _number(pid: int, name: str) -> int:
    """Return the number of a thread; 0: its address says nothing of it."""
    return 0 if _is_address(name) else kernel.thread(pid, int(name))


def _is_address(name: str) -> bool:
    return name.startswith("0x")


def _watched(number: int, is_main: bool, stacks: Mapping[tuple[Place, ...], int]) -> WatchedThread:
    seen = tuple(SeenStack(frames, count, count / _RATE) for frames, count in stacks.items())
    last = max(stacks, key=lambda frames: stacks[frames])
    return WatchedThread(number, is_main, seen, last)


def _place(text: str) -> Place:
    frame = _FRAME.fullmatch(text)
    if frame is None:
        return Place("", text, 0)
    return Place(frame[2], frame[1], int(frame[3] or 0))


def program() -> str | None:
    """Return where py-spy is installed; None: nowhere."""
    beside = Path(sys.executable).parent / "py-spy"
    return str(beside) if beside.is_file() else shutil.which("py-spy")
