"""Samples stacks with py-spy, of Pythons that are not the one that feedline runs."""

import os
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Iterable
from pathlib import Path

from feedline.profiler.attach.watched import SeenStack, WatchedThread
from feedline.profiler.errors import MissingDependency, NotPermitted
from feedline.profiler.files.bounded import one_line
from feedline.profiler.stacks.thread_stacks import Place

NAME = "py-spy"
_RATE = 25  # per second
_PROCESS = re.compile(r'process (\d+):"')
_THREAD = re.compile(r";?thread \((\d+)\)(?:: [^;]*)?;")
_FRAME = re.compile(r"(.*) \((.*?)(?::(\d+))?\)")
_START_S = 20.0


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
        self._counts: dict[int, dict[int, dict[tuple[Place, ...], int]]] = {}

    def meet(self, pid: int) -> None:
        """Nothing: py-spy finds processes below those that it begins with."""

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
        counts = self._counts.get(pid, {})
        return tuple(_watched(pid, number, stacks) for number, stacks in counts.items())

    def _add(self, line: str, root: int) -> None:
        text, _, count = line.rpartition(" ")
        thread = _THREAD.search(text)
        if thread is None or not count.isdecimal():
            return
        pids = _PROCESS.findall(text[: thread.start()])
        pid = int(pids[-1]) if pids else root
        frames = tuple(map(_place, text[thread.end() :].split(";")))
        stacks = self._counts.setdefault(pid, {}).setdefault(int(thread[1]), {})
        stacks[frames] = stacks.get(frames, 0) + int(count)


def _watched(pid: int, number: int, stacks: dict[tuple[Place, ...], int]) -> WatchedThread:
    seen = tuple(SeenStack(frames, count, count / _RATE) for frames, count in stacks.items())
    last = max(stacks, key=lambda frames: stacks[frames])
    return WatchedThread(number, number == pid, seen, last)


def _place(text: str) -> Place:
    frame = _FRAME.fullmatch(text)
    if frame is None:
        return Place("", text, 0)
    return Place(frame[2], frame[1], int(frame[3] or 0))


def program() -> str | None:
    """Return where py-spy is installed; None: nowhere."""
    beside = Path(sys.executable).parent / "py-spy"
    return str(beside) if beside.is_file() else shutil.which("py-spy")
