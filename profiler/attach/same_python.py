"""Where another process that runs the same Python keeps the states of its threads.

Both have mapped the same file: what is at some distance from its beginning here is there too.
Other offsets are found by looking in this process, as stacks/interpreter_layout.py does.
"""

import bisect
import ctypes
import os
import struct
import threading
from collections.abc import Sequence
from dataclasses import dataclass

from feedline.profiler import proc
from feedline.profiler.stacks.interpreter_layout import (
    Layout,
    UnknownLayout,
    c_function,
    code_type,
    find_layout,
    thread_states,
)
from feedline.profiler.stacks.memory_access import ProcessMemory

_RUNTIME_BYTES, _INTERPRETER_BYTES, _STATE_BYTES = 1 << 14, 1 << 16, 768
_MOST_THREADS = 1000


class OtherPython(Exception):
    """A process runs another Python than this one, or none."""


@dataclass(frozen=True)
class _Mapped:
    """A file in a process's memory: its device and number, and where it begins."""

    file: tuple[str, str]
    begin: int


@dataclass(frozen=True)
class SamePython:
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
    def find(cls) -> "SamePython":
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
    def _looked_up(cls, layout: Layout) -> "SamePython":
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
        while state and len(states) < _MOST_THREADS:
            states.append(state)
            state = memory.words(state + 8 * self.next_word, 1)[0]
        return states


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
