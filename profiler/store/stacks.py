"""Sampled stacks of Python code: what the training's processes were doing at random moments."""

from dataclasses import dataclass

from feedline.profiler.store.run_folder import Rank


@dataclass(frozen=True)
class StackFrame:
    """One frame of Python code.

    Attributes:
        file: as its code has it, masked like other paths.
        line: of it that was being executed.
        function: its name.
    """

    file: str
    line: int
    function: str


@dataclass(frozen=True)
class SampledStack:
    """One stack, however often it was seen.

    Attributes:
        phase: start (before the first step that counts, or the first batch), loop or end.
        thread: main, pin_memory or other.
        frames: outermost first, those of libraries included.
        samples: how often it was seen.
        seconds: wall time that these samples stand for.
    """

    phase: str
    thread: str
    frames: tuple[StackFrame, ...]
    samples: int
    seconds: float


@dataclass(frozen=True)
class ProcessStacks:
    """The stacks of one process.

    Attributes:
        process: its name in the run folder.
        kind: main or worker.
        pid: its number.
        seconds: wall time that was sampled.
        samples: how many there are.
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


def read_stacks(rank: Rank) -> tuple[ProcessStacks, ...]:
    """Return the stacks of a rank's processes; none were recorded."""
    return ()
