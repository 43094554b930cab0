"""Writes stacks.log, which store/stacks_reader.py reads.

It counts how often each stack was seen, and writes the counts of a stretch of time together.
"""

import os
from contextlib import suppress
from itertools import chain, count
from pathlib import Path

from feedline.profiler import masks
from feedline.profiler.files import owned
from feedline.profiler.stacks.thread_stacks import Place
from feedline.profiler.store.stack_format import LOG, MAGIC, MOST_WRITTEN, SCHEMA

_US = 1000
_TAP = " (feedline; "  # begins what a tap adds to the name of a file (taps/patch.py)


class LogFull(Exception):
    """The log has reached its size."""


class StackLog:
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
            raise LogFull

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
