"""Where this Python keeps its stacks in memory.

The structures differ between versions and builds. Instead of a table for each, every offset is
found by looking: in objects of this process, for values that are known. thread_stacks.py then reads
a stack with them, and compares it with the true one.
"""

import ctypes
import os
import sys
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from itertools import accumulate, chain, repeat, takewhile
from types import CodeType, FrameType
from typing import Any

from feedline.profiler.stacks.memory_access import ProcessMemory

_WORD = 8
_FRAME_WORDS, _STATE_WORDS = 16, 96
_LINE = 1_234_567
_MOST_CHUNK = 1 << 24


class UnknownLayout(Exception):
    """The Python at hand keeps its stacks in another way."""


@dataclass(frozen=True)
class Layout:
    """Offsets in bytes, or in words of 8 bytes where the name says so.

    Attributes:
        state_current_words: in a thread's state: its frame, or what points to it.
        current_words: in what that points to: the frame; -1: the state itself has it.
        state_thread_words: in a thread's state: its native id.
        state_newer_words: in a thread's state: that of the thread that began next, or 0.
        state_chunk_words: in a thread's state: the memory of its frames, their end, its end; -1:
            unknown.
        code_words, previous_words, instruction_words: in a frame.
        code_tag: what is added to a frame's pointer to its code.
        code_size: bytes of a code object that hold all below.
        code_file, code_name, code_lines: pointers in a code object.
        code_first_line: a number of 32 bits in it.
        code_start: where its instructions begin.
        text_shift: of the bits in the state of a string that say how it is kept.
        text: by these, where its characters begin, and their encoding.
        bytes_start: where the content of a bytes object begins.
    """

    state_current_words: int
    current_words: int
    state_thread_words: int
    state_newer_words: int
    state_chunk_words: int
    code_words: int
    code_tag: int
    previous_words: int
    instruction_words: int
    code_size: int
    code_file: int
    code_name: int
    code_lines: int
    code_first_line: int
    code_start: int
    text_shift: int
    text: dict[int, tuple[int, str]]
    bytes_start: int = bytes.__basicsize__ - 1

    def as_json(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def of_json(cls, data: dict[str, Any]) -> "Layout":
        text = {int(bits): (int(at), str(kind)) for bits, (at, kind) in data["text"].items()}
        return cls(**{**data, "text": text})


def thread_states() -> list[int]:
    """Return the addresses of the states of all threads that have run Python code, newest first.

    The list is followed by C code alone, which never gives the GIL away: a thread that ended
    meanwhile would leave a pointer to memory that was freed.
    """
    interpreter = c_function("PyInterpreterState_Get")()
    newest = map(c_function("PyInterpreterState_ThreadHead", ctypes.c_void_p), (interpreter,))
    older = c_function("PyThreadState_Next", ctypes.c_void_p)
    # older(state, 0): C ignores the second argument
    return list(takewhile(bool, accumulate(chain(newest, repeat(0)), older)))


def c_function(name: str, *arguments: type) -> Callable[..., int]:
    """Return a function of Python's that returns a pointer, apart from the program's own of it."""
    function = ctypes.PyDLL(None)[name]
    function.restype, function.argtypes = ctypes.c_void_p, arguments
    return function


def code_type() -> int:
    """Return the address of the type of code objects in this process."""
    return id(CodeType)


def find_layout() -> Layout:
    """Return the layout of this Python.

    Raises:
        UnknownLayout: not all of it was found.
        OSError: this process must not read its own memory.
    """
    if sys.implementation.name != "cpython" or sys.maxsize >> 32 == 0:
        raise UnknownLayout("only CPython of 64 bits is known")
    try:
        return _find(ProcessMemory(os.getpid()))
    except (ValueError, AttributeError, LookupError, StopIteration) as error:
        raise UnknownLayout(f"this Python ({sys.version.split()[0]}) is not known") from error


class ParkedThread:
    """A thread that stands still in two known frames, for as long as the block lasts.

    Attributes:
        number: its native id.
        inner, outer: the frames.
    """

    def __enter__(self) -> "ParkedThread":
        self._gate, self._there = threading.Lock(), threading.Event()
        self._gate.acquire()
        self._thread = threading.Thread(target=self._outer, daemon=True)
        self._thread.start()
        self._there.wait()
        self.number = self._thread.native_id or 0
        frame = sys._current_frames()[self._thread.ident or 0]
        while frame.f_code is not self._inner.__code__:  # it has not left ``set`` yet
            time.sleep(0.001)
            frame = sys._current_frames()[self._thread.ident or 0]
        self.inner, self.outer = frame, frame.f_back
        return self

    def __exit__(self, *_: object) -> None:
        self.inner = self.outer = None  # type: ignore[assignment]
        self._gate.release()
        self._thread.join()

    def _outer(self) -> None:
        self._inner()

    def _inner(self) -> None:
        self._there.set()
        self._gate.acquire()


def _find(memory: ProcessMemory) -> Layout:
    with ParkedThread() as parked:
        assert parked.outer is not None
        inner, code_words, tag = _interpreter_frame(memory, parked.inner)
        outer, _, _ = _interpreter_frame(memory, parked.outer)
        outer_words = memory.words(outer, _FRAME_WORDS)
        code = parked.outer.f_code
        instruction = next(
            place
            for place, word in enumerate(outer_words)
            if id(code) + CodeType.__basicsize__ // 2 < word <= id(code) + code.__sizeof__()
        )
        states = thread_states()  # the newest first
        place, words = next(
            (place, words)
            for place, state in enumerate(states)
            if parked.number in (words := memory.words(state, _STATE_WORDS))
        )
        newer = memory.words(states[place + 1], _STATE_WORDS).index(states[place])
        current, in_current = _current(memory, words, inner)
        return Layout(
            state_current_words=current,
            current_words=in_current,
            state_thread_words=words.index(parked.number),
            state_newer_words=newer,
            state_chunk_words=_chunk(words, inner),
            code_words=code_words,
            code_tag=tag,
            previous_words=memory.words(inner, _FRAME_WORDS).index(outer),
            instruction_words=instruction,
            code_start=outer_words[instruction] - parked.outer.f_lasti - id(code),
            **_of_code(memory),
            **_of_text(memory),
        )


def _interpreter_frame(memory: ProcessMemory, frame: FrameType) -> tuple[int, int, int]:
    """Return the address of the frame behind a frame object, and the word in it with its code.

    The third number is what is added to that word.
    """
    code = id(frame.f_code)
    for word in memory.words(id(frame), 8)[2:]:
        words = _pointed_to(memory, word, _FRAME_WORDS)
        for tag in (0, 1):
            if code + tag in words:
                return word, words.index(code + tag), tag
    raise LookupError("a frame")


def _current(memory: ProcessMemory, words: Sequence[int], frame: int) -> tuple[int, int]:
    """Return where a thread's state has its frame: the word in it, and in what that points to."""
    if frame in words:
        return words.index(frame), -1
    for place, word in enumerate(words):
        inside = _pointed_to(memory, word, 4)
        if frame in inside:
            return place, inside.index(frame)
    raise LookupError("the running frame")


def _pointed_to(memory: ProcessMemory, word: int, count: int) -> tuple[int, ...]:
    """Return the words that a word points to, or none."""
    if word < 1 << 12 or word % _WORD or word >> 47:
        return ()
    try:
        return memory.words(word, count)
    except OSError:
        return ()


def _chunk(words: Sequence[int], frame: int) -> int:
    """Return the first of three words: the memory that holds a frame, its used end, its end."""
    for place in range(len(words) - 2):
        begin, used, end = words[place : place + 3]
        if begin <= frame < used <= end and end - begin <= _MOST_CHUNK:
            return place
    return -1


def _of_code(memory: ProcessMemory) -> dict[str, Any]:
    code = _of_code.__code__.replace(co_firstlineno=_LINE)
    size = CodeType.__basicsize__
    words = memory.words(id(code), size // _WORD)
    data = bytes(memory.read(id(code), size))
    return {
        "code_size": size,
        "code_file": words.index(id(code.co_filename)) * _WORD,
        "code_name": words.index(id(code.co_name)) * _WORD,
        "code_lines": words.index(id(code.co_linetable)) * _WORD,
        "code_first_line": data.index(_LINE.to_bytes(4, "little")),
    }


#: Strings of each way in which Python keeps characters, with the five bits by which it tells them
#: apart: kind, compact, ascii.
_TEXTS = {
    "ascii": ("a1b2c3d4", 0b11001),
    "latin-1": ("é1ü2ö3ä4", 0b01001),
    "utf-16-le": ("жabcde", 0b01010),
    "utf-32-le": ("😀abc", 0b01100),
}
_TEXT_BITS = 0b11111


def _of_text(memory: ProcessMemory) -> dict[str, Any]:
    found: dict[int, tuple[int, str]] = {}
    states: list[tuple[int, int]] = []
    for encoding, (text, bits) in _TEXTS.items():
        data = bytes(memory.read(id(text), sys.getsizeof(text)))
        found[bits] = data.index(text.encode(encoding)), encoding
        states.append((int.from_bytes(data[32:36], "little"), bits))
    shift = next(
        place
        for place in range(28)
        if all(state >> place & _TEXT_BITS == bits for state, bits in states)
    )
    return {"text_shift": shift, "text": found}
