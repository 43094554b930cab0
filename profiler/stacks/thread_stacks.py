"""Reads the stack of a thread out of a process's memory while it runs.

The frames of a thread lie side by side in a few blocks of memory, which are copied at once; what
has changed between two copies shows as a chain of frames that does not end, and is read again.
"""

import os
import struct
import traceback
from collections import OrderedDict
from typing import NamedTuple

from feedline.profiler.stacks.interpreter_layout import (
    Layout,
    ParkedThread,
    code_type,
    thread_states,
)
from feedline.profiler.stacks.memory_access import ProcessMemory

_STATE_WORDS = 96
_FRAME_BYTES = 128
_TRIES = 3
_MOST_FRAMES = 20_000
_OUTER, _INNER = 64, 192  # frames of a deep stack that are kept
_MOST_THREADS = 64
_LONGEST_TEXT, _LONGEST_TABLE = 4096, 1 << 18
_MOST_CODES, _MOST_STACKS = 50_000, 5_000
_word = struct.Struct("<Q")
#: Frames that Python itself puts between C and Python code.
_SHIMS = ("<shim>", "<interpreter trampoline>")


class Torn(Exception):
    """The frames changed while they were read."""


class Place(NamedTuple):
    """A frame: its file and function, and the line that runs; 0: unknown."""

    file: str
    function: str
    line: int


class _Code:
    """A code object.

    Attributes:
        lines: offset of an instruction -> its line.
    """

    def __init__(self, file: str, function: str, first: int, start: int, table: bytes) -> None:
        self.file, self.function, self.start = file, function, start
        self.shim = file in _SHIMS or function in _SHIMS
        self._first, self._table = first, table
        self._places: dict[int, Place] = {}

    def at(self, instruction: int) -> Place:
        offset = instruction - self.start
        place = self._places.get(offset)
        if place is None:
            line = _line_at(self._table, self._first, offset)
            place = self._places[offset] = Place(self.file, self.function, line)
        return place


def _line_at(table: bytes, line: int, offset: int) -> int:
    """Return the line of an instruction; 0: it has none.

    Args:
        table: ``co_linetable``, of Python 3.11 or later (Objects/locations.md in its sources).
        line: ``co_firstlineno``.
        offset: of the instruction, bytes.
    """
    place, begin = 0, 0
    while place < len(table):
        head = table[place]
        place += 1
        kind, units = head >> 3 & 15, (head & 7) + 1
        has_line = kind != 15
        if kind in (13, 14):
            delta, place = _signed(table, place)
            line += delta
        elif 10 <= kind <= 12:
            line += kind - 10
        while place < len(table) and not table[place] & 0x80:
            place += 1
        begin += 2 * units
        if offset < begin:
            return line if has_line else 0
    return 0


def _signed(table: bytes, place: int) -> tuple[int, int]:
    """Return a number of variable length, and the place after it."""
    value = shift = 0
    while True:
        byte = table[place]
        place += 1
        value |= (byte & 63) << shift
        shift += 6
        if not byte & 64:
            return (-(value >> 1) if value & 1 else value >> 1), place


def reads_truly(layout: Layout) -> bool:
    """Return whether a stack of this process that is read with a layout is the true one."""
    memory = ProcessMemory(os.getpid())
    reader = StackReader(memory, layout, code_type())
    with ParkedThread() as parked:
        states = [
            state
            for state in thread_states()
            if memory.words(state, _STATE_WORDS)[layout.state_thread_words] == parked.number
        ]
        entries = traceback.StackSummary.extract(
            traceback.walk_stack(parked.inner), lookup_lines=False
        )
        true = [(entry.filename, entry.name, entry.lineno) for entry in entries]
        read = [
            (place.file, place.function, place.line)
            for state in states
            for place in reader.stack(parked.number, state)
        ]
    return read == true


class StackReader:
    """Reads the stacks of the threads of one process.

    Args:
        memory: of the process.
        layout: of its Python.
        code_type: address of the type of code objects in it.
    """

    def __init__(self, memory: ProcessMemory, layout: Layout, code_type: int) -> None:
        self._memory, self._layout, self._code_type = memory, layout, code_type
        self._codes: OrderedDict[int, _Code | None] = OrderedDict()
        self._stacks: dict[tuple[tuple[int, int], ...], tuple[Place, ...]] = {}
        at = (layout.code_words, layout.previous_words, layout.instruction_words)
        self._frame = struct.Struct(f"<{max(at) + 1}Q")
        self._at = at

    def stack(self, thread: int, state: int) -> tuple[Place, ...]:
        """Return its frames, innermost first; of a deep stack only the first and last ones.

        Empty: it runs no Python code now.

        Args:
            thread: native id.
            state: address of its state.

        Raises:
            Torn: it changed too fast.
            LookupError: the thread has ended.
            OSError: the process has ended, or must not be read.
        """
        for attempt in range(_TRIES):
            try:
                return self._read(thread, state)
            except Torn:
                if attempt == _TRIES - 1:
                    raise
            except OSError:
                self._memory.words(state, 1)  # is it all gone, or did a pointer lead nowhere?
        raise Torn

    def threads(self, state: int) -> list[tuple[int, int]]:
        """Return native id and state of all threads, the oldest first, from the oldest one's state.

        Raises:
            OSError: as ``stack``.
        """
        layout = self._layout
        found: list[tuple[int, int]] = []
        count = 1 + max(layout.state_thread_words, layout.state_newer_words)
        while state and len(found) < _MOST_THREADS:
            words = self._memory.words(state, count)
            found.append((words[layout.state_thread_words], state))
            state = words[layout.state_newer_words]
        return found

    def forget(self) -> None:
        """Forget code objects: the memory of those that are gone may hold others."""
        self._codes.clear()
        self._stacks.clear()

    def _read(self, thread: int, state: int) -> tuple[Place, ...]:
        layout, memory = self._layout, self._memory
        words = memory.words(state, _STATE_WORDS)
        if words[layout.state_thread_words] != thread:
            raise LookupError(thread)
        frame = words[layout.state_current_words]
        if layout.current_words >= 0:
            frame = memory.words(frame, 4)[layout.current_words]
        begin, block = self._block(words)
        found: list[tuple[int, int]] = []
        code_at, previous_at, running_at = self._at
        word = self._frame.unpack_from
        end = begin + len(block) - _FRAME_BYTES
        while frame:
            at = frame - begin
            if begin <= frame <= end:
                data, at = block, at
            else:
                data, at = bytes(memory.read(frame, _FRAME_BYTES)), 0
            try:
                words = word(data, at)
            except struct.error as error:  # the memory ends there
                raise Torn from error
            found.append((words[code_at], words[running_at]))
            frame = words[previous_at]
            if len(found) > _MOST_FRAMES:
                raise Torn
        if len(found) > _OUTER + _INNER:
            found[_INNER:-_OUTER] = []
        key = tuple(found)
        places = self._stacks.get(key)
        if places is None:
            codes = [
                (self._code(address - layout.code_tag), instruction)
                for address, instruction in found
            ]
            places = tuple(
                code.at(instruction)
                for code, instruction in codes
                if code is not None and not code.shim
            )
            if len(self._stacks) >= _MOST_STACKS:
                self._stacks.clear()
            self._stacks[key] = places
        return places

    def _block(self, words: tuple[int, ...]) -> tuple[int, bytes]:
        """Copy the block of memory that holds the innermost frames; return its address too."""
        place = self._layout.state_chunk_words
        if place < 0:
            return 0, b""
        begin, used, end = words[place : place + 3]
        if not begin < used <= end:
            return 0, b""
        size = min(used - begin + 1024, end - begin, self._memory.most)
        return begin, bytes(self._memory.read(begin, size))

    def _code(self, address: int) -> _Code | None:
        try:
            return self._codes[address]
        except KeyError:
            pass
        code = self._new_code(address)
        self._codes[address] = code
        if len(self._codes) > _MOST_CODES:
            self._codes.popitem(last=False)
        return code

    def _new_code(self, address: int) -> _Code | None:
        """Read a code object; None: it is another object, of a frame that belongs to C.

        Raises:
            Torn: there is no object.
        """
        layout, memory = self._layout, self._memory
        try:
            data = bytes(memory.read(address, layout.code_size))
            if _word.unpack_from(data, 8)[0] != self._code_type:
                memory.words(_word.unpack_from(data, 8)[0], 1)  # is it an object at all?
                return None
            first = int.from_bytes(data[layout.code_first_line :][:4], "little", signed=True)
            return _Code(
                self._text(_word.unpack_from(data, layout.code_file)[0]),
                self._text(_word.unpack_from(data, layout.code_name)[0]),
                first,
                address + layout.code_start,
                self._bytes(_word.unpack_from(data, layout.code_lines)[0]),
            )
        except (OSError, struct.error, LookupError, UnicodeDecodeError) as error:
            raise Torn from error

    def _text(self, address: int) -> str:
        data = bytes(self._memory.read(address, 72))
        length = int.from_bytes(data[16:24], "little")
        kind = int.from_bytes(data[32:36], "little") >> self._layout.text_shift & 31
        start, encoding = self._layout.text[kind]
        width = 4 if "32" in encoding else 2 if "16" in encoding else 1
        if length > _LONGEST_TEXT:
            raise LookupError(length)
        data = bytes(self._memory.read(address + start, length * width))
        return data.decode(encoding, "surrogatepass")  # of a folder whose name is not UTF-8

    def _bytes(self, address: int) -> bytes:
        length = self._memory.words(address + 16, 1)[0]
        if length > _LONGEST_TABLE:
            raise LookupError(length)
        if not length:
            return b""
        return bytes(self._memory.read(address + self._layout.bytes_start, length))
