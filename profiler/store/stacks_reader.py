"""Sampled stacks of Python code: what the training's processes were doing at random moments.

stacks.log in a rank's folder is written by the helper that reads the stacks (profiler/stacks), a
line at a time; what a killed one leaves is complete up to its last line. Fields are separated by
tabs, and numbered things by the order in which they appear:

    feedline-stacks 1 PID      schema version, and the helper
    p NAME PID                 a process
    f LINE FUNCTION FILE       a frame
    m NS BYTES FILE            when a file of the program was changed last, and its size
    s PROCESS THREAD FRAMES    a stack: its frames, outermost first, separated by commas
    g BEGIN END                what follows was seen between these moments, ns of CLOCK_MONOTONIC
    c STACK SAMPLES NS         how often a stack was seen, and the wall time that this stands for
    m US,US,...                of the training's main thread: when it was, us since BEGIN
    r PROCESS WHY              why not all of a process is there
    e                          the recording has ended
"""

import os
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from pathlib import Path
from typing import NamedTuple

import numpy as np

from feedline.profiler.errors import RunDamaged, SchemaTooNew
from feedline.profiler.events import Flag, Stage
from feedline.profiler.files.bounded import whole
from feedline.profiler.store.record_columns import Records
from feedline.profiler.store.run_folder import Rank
from feedline.profiler.store.sampled_stacks import (
    FileState,
    ProcessStacks,
    SampledStack,
    StackFrame,
)
from feedline.profiler.store.segment_reader import Process
from feedline.profiler.store.stack_format import LOG, MAGIC, MAIN, SCHEMA

_MOST_LOG = 64 << 20
_MOST_FRAMES = 512  # in a stack
_MOST_NS = 1 << 60
_START, LOOP, _END = "start", "loop", "end"


def read_stacks(rank: Rank) -> tuple[ProcessStacks, ...]:
    """Return the stacks of a rank's processes, the main process first; none if none were recorded.

    Of one of several trainings, only what was seen while it ran.

    Raises:
        RunDamaged: the file was changed or damaged.
        SchemaTooNew: a newer feedline wrote it.
    """
    log = _log_of(rank)
    if log is None:
        return _refused(rank)
    first, last = _times(rank)
    seen = [part for one in log.seen if (part := one.within(first, last)).samples]
    return tuple(_stacks_of(rank, log, seen))


def read_file_states(rank: Rank) -> dict[str, FileState]:
    """Return files of the program, as frames name them, and how they were when they ran.

    Raises:
        RunDamaged, SchemaTooNew: as of ``read_stacks``.
    """
    log = _log_of(rank)
    return log.files if log is not None else {}


class Stretch(NamedTuple):
    """What was seen of a thread in a stretch of time; in which order is not known.

    Attributes:
        begin, end: ns of CLOCK_MONOTONIC.
        stacks: frames, outermost first; how often they were seen; ns that this stands for.
    """

    begin: int
    end: int
    stacks: list[tuple[tuple[StackFrame, ...], int, int]]


@dataclass(frozen=True)
class StackTimes:
    """The stacks of a rank's processes, with when they were seen.

    Attributes:
        until: the last moment, ns of CLOCK_MONOTONIC.
    """

    until: int
    _rank: Rank
    _log: "_Log"

    @classmethod
    def of(cls, rank: Rank) -> "StackTimes | None":
        """Read them; None: none were recorded. Raises RunDamaged, SchemaTooNew."""
        log = _log_of(rank)
        return cls(max((one.end for one in log.seen), default=0), rank, log) if log else None

    def between(self, begin: int, end: int) -> tuple[ProcessStacks, ...]:
        """Return what was seen of processes between two moments, in stretches that began there.

        A stretch in which the first moment lies is left out: it also has what came before.
        """
        stretches = [one.within(begin, end) for one in self._log.seen if begin <= one.begin < end]
        every = _stacks_of(self._rank, self._log, stretches)
        return tuple(process for process in every if process.samples)

    def stretches(self) -> dict[str, list[Stretch]]:
        """Return process -> what was seen of its main thread, stretch by stretch."""
        log, (first, last) = self._log, _times(self._rank)
        found: dict[str, list[Stretch]] = {}
        for seen in log.seen:
            process, thread, frames = log.stacks[seen.stack]
            if thread != "main" or not first <= seen.middle <= last:
                continue
            own = found.setdefault(log.processes[process][0], [])
            if not own or own[-1].begin != seen.begin:
                own.append(Stretch(seen.begin, seen.end, []))
            stack = tuple(log.frames[number] for number in frames)
            own[-1].stacks.append((stack, seen.samples, seen.ns))
        return found


def _log_of(rank: Rank) -> "_Log | None":
    """Return the log of a rank; None: it has none. Raises RunDamaged, SchemaTooNew."""
    path = rank.folder / LOG
    try:
        about = os.stat(path)
    except FileNotFoundError:
        return None
    return _parsed(path, about.st_mtime_ns, about.st_size)


@lru_cache(maxsize=2)
def _parsed(path: Path, changed_ns: int, size: int) -> "_Log":
    """Read a log as it was at that time; a report asks for it several times."""
    text = whole(path, _MOST_LOG).decode("utf-8", "replace")
    try:
        return _Log.of(text, path)
    except (ValueError, IndexError) as error:
        raise RunDamaged(
            f"{path} cannot be read ({error}): delete it to see the run without its lines of code"
        ) from error


def _refused(rank: Rank) -> tuple[ProcessStacks, ...]:
    """Return why nothing was sampled, where the recording says so."""
    for hook in rank.manifest.hooks:
        if hook.get("name") == "stacks" and not hook.get("attached"):
            return (ProcessStacks(MAIN, MAIN, rank.manifest.pid, 0.0, 0, str(hook["why"]), ()),)
    return ()


@dataclass
class _Seen:
    """What was seen of a process: the stacks of a stretch of time."""

    begin: int
    end: int
    stack: int
    samples: int
    ns: int
    moments: tuple[int, ...] = ()

    @property
    def middle(self) -> int:
        return (self.begin + self.end) // 2

    def within(self, first: int, last: int) -> "_Seen":
        """Return what was seen between two moments; where those were not kept, all of it or nothing."""
        if len(self.moments) != self.samples:
            return self if first <= self.middle <= last else replace(self, samples=0, ns=0)
        kept = tuple(moment for moment in self.moments if first <= moment <= last)
        ns = self.ns * len(kept) // max(1, self.samples)
        return replace(self, samples=len(kept), ns=ns, moments=kept)


@dataclass
class _Count:
    """What a process's stack was seen in all."""

    samples: int = 0
    ns: int = 0
    moments: list[int] = field(default_factory=list)


@dataclass
class _Log:
    """Content of a log."""

    processes: list[tuple[str, int]] = field(default_factory=list)
    frames: list[StackFrame] = field(default_factory=list)
    stacks: list[tuple[int, str, tuple[int, ...]]] = field(default_factory=list)
    seen: list[_Seen] = field(default_factory=list)
    files: dict[str, FileState] = field(default_factory=dict)
    refused: dict[int, str] = field(default_factory=dict)
    ended: bool = False

    @classmethod
    def of(cls, text: str, path: Path) -> "_Log":
        """Read the complete lines of a log.

        Raises:
            ValueError, IndexError: it is not one.
            SchemaTooNew: a newer feedline wrote it.
        """
        lines = text.split("\n")[:-1]
        log = cls()
        if not lines:
            return log
        magic, version, *_ = lines[0].split()
        if magic != MAGIC:
            raise ValueError("it does not begin as such a file does")
        if int(version) > SCHEMA:
            raise SchemaTooNew.of(path, int(version), SCHEMA)
        begin = end = 0
        for line in lines[1:]:
            kind, *words = line.split("\t")
            if kind == "c":
                stack, samples, ns = map(int, words)
                log.stacks[stack]
                if not (0 <= samples < 1 << 40 and 0 <= ns < _MOST_NS):
                    raise ValueError("it has numbers that no recording writes")
                log.seen.append(_Seen(begin, end, stack, samples, ns))
            elif kind == "g":
                begin, end = map(int, words)
            elif kind == "m":
                moments = tuple(begin + 1000 * int(us) for us in words[0].split(",") if us)
                if any(not 0 <= moment < _MOST_NS for moment in moments):
                    raise ValueError("it has moments that no recording writes")
                log.seen[-1].moments = moments
            else:
                log._named(kind, words)
        return log

    def _named(self, kind: str, words: Sequence[str]) -> None:
        if kind == "f":
            self.frames.append(StackFrame(words[2], int(words[0]), words[1]))
        elif kind == "s":
            frames = tuple(map(int, words[2].split(","))) if words[2] else ()
            if len(frames) > _MOST_FRAMES or any(not 0 <= n < len(self.frames) for n in frames):
                raise ValueError("it names frames that it does not have")
            self.processes[int(words[0])]
            self.stacks.append((int(words[0]), words[1], frames))
        elif kind == "p":
            self.processes.append((words[0], int(words[1])))
        elif kind == "r":
            self.refused[int(words[0])] = words[1]
        elif kind == "w":
            self.files[words[2]] = FileState(int(words[0]), int(words[1]))
        elif kind == "e":
            self.ended = True


def _stacks_of(rank: Rank, log: _Log, stretches: Sequence[_Seen]) -> Iterator[ProcessStacks]:
    phases = {name_of(process): _phases(_loop(process)) for process in rank.processes}
    counts: dict[str, dict[tuple[str, str, tuple[int, ...]], _Count]] = {
        name: defaultdict(_Count) for name, _ in log.processes
    }
    for seen in stretches:
        process, thread, frames = log.stacks[seen.stack]
        name = log.processes[process][0]
        for phase, first, last in phases.get(name) or _phases(None):
            if not (part := seen.within(first, last)).samples:
                continue
            count = counts[name][phase, thread, frames]
            count.samples += part.samples
            count.ns += part.ns
            count.moments += part.moments
    pids = dict(log.processes)
    refused = {log.processes[number][0]: why for number, why in log.refused.items()}
    for name in sorted(counts, key=lambda name: (name != MAIN, name)):
        stacks = tuple(
            SampledStack(
                phase,
                thread,
                tuple(log.frames[n] for n in frames),
                count.samples,
                count.ns * 1e-9,
                tuple(count.moments),
            )
            for (phase, thread, frames), count in counts[name].items()
        )
        seconds = sum(stack.seconds for stack in stacks if stack.thread == "main")
        samples = sum(stack.samples for stack in stacks)
        kind = "main" if name == MAIN else "worker"
        yield ProcessStacks(name, kind, pids[name], seconds, samples, refused.get(name, ""), stacks)


def _times(rank: Rank) -> tuple[int, int]:
    """Return between which moments stacks belong to the rank's training, ns."""
    return (0, _MOST_NS) if rank.slice is None else (rank.slice.begin, rank.slice.end)


def name_of(process: Process) -> str:
    """Return what the log calls a process."""
    header = process.header
    if not process.is_worker:
        return MAIN
    # of a run that an older feedline has made smaller, it is the first that had this number
    return str(header.get("segment", f"loader{header['loader']}-worker{header['worker']}"))


#: What shows that a process is in the training's loop.
_STEPS = (Stage.NEXT, Stage.FORWARD, Stage.BACKWARD, Stage.OPTIMIZER)
_LAST = ((Stage.OPTIMIZER,), (Stage.BACKWARD,), _STEPS)


def _loop(process: Process) -> tuple[int, int] | None:
    """Return when its loop began and ended, ns; None: it had none."""
    records = process.of(Stage.FETCH) if process.is_worker else process.of(*_STEPS)
    if not len(records):
        return None
    last = records
    if not process.is_worker:
        last = next(own for stages in _LAST if len(own := process.of(*stages)))
    ends = last["start"] + np.maximum(last["wall"], 0)
    begin = records["start"].min() if process.is_worker else _first_step(process, records)
    return int(begin), int(ends.max())


def _first_step(process: Process, records: Records) -> np.int64:
    """Return when the first step asked for its batch; models may have been called long before, ns."""
    learned = process.of(Stage.BACKWARD, Stage.OPTIMIZER)["start"]
    before = records[records["start"] < learned.min()] if len(learned) else records[:0]
    asked = before[before["stage"] == Stage.NEXT]["start"]
    if len(asked):
        return np.int64(asked.max())
    trains = before[before["flags"] & Flag.GRAD != 0]["start"]
    return np.int64(min((*trains, *learned), default=records["start"].min()))


def _phases(loop: tuple[int, int] | None) -> tuple[tuple[str, int, int], ...]:
    """Return the phases of a process: its loop, and what lies before and after, each up to a moment."""
    if loop is None:
        return ((_START, 0, _MOST_NS),)
    begin, end = loop
    return ((_START, 0, begin - 1), (LOOP, begin, end), (_END, end + 1, _MOST_NS))
