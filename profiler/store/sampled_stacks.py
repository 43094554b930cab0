"""Sampled stacks of Python code, as plain dataclasses: stacks_reader.py reads them."""

from dataclasses import dataclass
from typing import NamedTuple


class FileState(NamedTuple):
    """A file as it was when it was first seen to run.

    Attributes:
        changed_ns: when it was changed last, ns since 1970.
        size: bytes.
    """

    changed_ns: int
    size: int


@dataclass(frozen=True)
class StackFrame:
    """One frame of Python code.

    Attributes:
        file: as its code has it, masked like other paths.
        line: of it that was being executed; 0: unknown.
        function: its name.
    """

    file: str
    line: int
    function: str


@dataclass(frozen=True)
class SampledStack:
    """One stack, however often it was seen.

    Attributes:
        phase: start (before the first step, or the first batch), loop or end.
        thread: main, pin_memory or other.
        frames: outermost first, those of libraries included.
        samples: how often it was seen.
        seconds: wall time that these samples stand for.
        moments: when they were taken, int ns of CLOCK_MONOTONIC; empty: that was not kept.
    """

    phase: str
    thread: str
    frames: tuple[StackFrame, ...]
    samples: int
    seconds: float
    moments: tuple[int, ...] = ()


@dataclass(frozen=True)
class ProcessStacks:
    """The stacks of one process.

    Attributes:
        process: its name in the run folder.
        kind: main or worker.
        pid: its number; of several workers one after another, the last one's.
        seconds: wall time of its main thread that was sampled.
        samples: how many there are, of all its threads.
        refused: why not all of it was sampled; empty if it was.
        stacks: those that were seen.
    """

    process: str
    kind: str
    pid: int
    seconds: float
    samples: int
    refused: str
    stacks: tuple[SampledStack, ...]
