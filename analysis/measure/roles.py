"""Which processes of a watched training compute, which make batches, and which only start others."""

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path
from typing import TypeVar

from feedline.analysis.measure.code_frames import origin
from feedline.analysis.measure.code_tree import MAIN, WORKER
from feedline.profiler import masks
from feedline.profiler.attach.watched import SeenStack, Watched, WatchedProcess, WatchedThread
from feedline.profiler.masks import PYTHON
from feedline.profiler.stacks.thread_stacks import Place
from feedline.profiler.store.sampled_stacks import ProcessStacks, SampledStack, StackFrame
from feedline.profiler.store.stacks_reader import LOOP

_OTHER, _LAUNCHER = "other", "launcher"
_LAUNCHES = re.compile(
    r"distributed/(run|launch|launcher/.*|elastic/.*)\.py|multiprocessing/spawn\.py"
)
_SERVER = re.compile(r"multiprocessing/(forkserver|resource_tracker)\.py")
_START = ("multiprocessing/process.py", "_bootstrap")
_PIN = "_pin_memory_loop"
_Frame = TypeVar("_Frame", Place, StackFrame)
_WORKER_NAME = "pt_data_worker"  # torch/utils/data/_utils/worker.py


@dataclass
class WatchedRank:
    """A process that trains, with those that work for it.

    Attributes:
        number: its rank; None: it is the only process that trains.
        main: the process that trains.
        workers: that make its batches, in the order in which they began.
        others: that it has started for something else.
        numbers: of the workers, as their loader counts them; empty: as they began.
    """

    number: int | None
    main: WatchedProcess
    workers: list[WatchedProcess] = field(default_factory=list)
    others: list[WatchedProcess] = field(default_factory=list)
    numbers: Sequence[int] = ()

    @property
    def processes(self) -> list[tuple[str, WatchedProcess]]:
        """Name and process: of the main process, the workers and the others."""
        several = self.number is not None
        of = f" of rank {self.number}" if several else ""
        return [
            (f"rank {self.number}" if several else "the main process", self.main),
            *(
                (f"worker {number}{of}", worker)
                for number, worker in zip(self.numbers or count(), self.workers)
            ),
            *((f"process {other.pid}", other) for other in self.others),
        ]

    def stacks(self) -> list[ProcessStacks]:
        """Return the stacks of ``processes``, in that order."""
        workers = [worker.pid for worker in self.workers]
        return [
            _stacks(
                process,
                MAIN if process is self.main else WORKER if process.pid in workers else _OTHER,
            )
            for _, process in self.processes
        ]


def ranks_of(watched: Watched) -> list[WatchedRank]:
    """Return the processes that train, in the order of their ranks."""
    by_pid = {process.pid: process for process in watched.processes}
    roles = {process.pid: _role(process) for process in watched.processes}
    mains: dict[int, WatchedRank] = {}
    for process in watched.processes:
        above = _above(process, by_pid)
        owner = next((mains[pid] for pid in above if pid in mains), None)
        if owner is None:
            if roles[process.pid] == _OTHER and process.main_thread is not None:
                mains[process.pid] = WatchedRank(process.rank, process)
        elif roles[process.pid] == WORKER or process.name == _WORKER_NAME:
            owner.workers.append(process)
        elif roles[process.pid] == _OTHER:
            owner.others.append(process)
    for rank in mains.values():
        rank.workers.sort(key=lambda process: (process.begun_s, process.pid))
    ranks = sorted(mains.values(), key=lambda rank: (rank.number is None, rank.number or 0))
    for number, rank in enumerate(ranks):
        if len(ranks) == 1:
            rank.number = None
        elif rank.number is None:
            rank.number = number
    return ranks


def inside_process(frames: Sequence[_Frame]) -> Sequence[_Frame]:
    """Return the frames of the process itself, without those of the parent that it is a fork of."""
    for at in range(len(frames) - 1, -1, -1):
        whose = origin(frames[at].file)
        if (whose.tail, frames[at].function.rpartition(".")[2]) == _START:
            return frames[at:]
    return frames


def frames_of(frames: Sequence[Place], folder: str) -> tuple[StackFrame, ...]:
    """Return frames with whole paths.

    Args:
        folder: in which the process works.
    """
    return tuple(
        StackFrame(_whole(file, folder), line, function) for file, function, line in frames
    )


def shown(file: str, folder: str) -> str:
    """Return a file as people name it: below the folder in which the process works; else masked."""
    below = folder and file.startswith(f"{folder}/")
    return file[len(folder) + 1 :] if below else masks.source(file)


def _whole(file: str, folder: str) -> str:
    is_path = file and not file.startswith(("/", "<"))
    return str(Path(folder) / file) if is_path and folder else file


def _role(process: WatchedProcess) -> str:
    thread = process.main_thread
    if thread is None:
        return _OTHER
    frames = [frame for stack in thread.stacks for frame in inside_process(stack.frames)]
    if any(_fits(frame, "torch", r"utils/data/_utils/worker\.py") for frame in frames):
        return WORKER
    if any(_fits(frame, PYTHON, _SERVER.pattern) for frame in frames):
        return _LAUNCHER
    launches = [
        any(_fits(frame, "torch", _LAUNCHES.pattern) for frame in inside_process(stack.frames))
        for stack in thread.stacks
    ]
    return _LAUNCHER if launches and sum(launches) * 2 > len(launches) else _OTHER


def _fits(frame: Place, owner: str, file: str) -> bool:
    whose = origin(frame.file)
    return whose.owner == owner and re.fullmatch(file, whose.tail) is not None


def _above(process: WatchedProcess, by_pid: dict[int, WatchedProcess]) -> list[int]:
    above = []
    while process.parent in by_pid and process.parent not in above:
        above.append(process.parent)
        process = by_pid[process.parent]
    return above


def _stacks(process: WatchedProcess, kind: str) -> ProcessStacks:
    stacks = tuple(
        SampledStack(
            LOOP,
            _name(thread),
            frames_of(stack.frames, process.folder),
            stack.samples,
            stack.seconds,
        )
        for thread in process.threads
        for stack in thread.stacks
    )
    samples = sum(stack.samples for stack in stacks)
    return ProcessStacks(
        str(process.pid), kind, process.pid, process.seconds, samples, process.refused, stacks
    )


def _name(thread: WatchedThread) -> str:
    if thread.is_main:
        return MAIN
    return "pin_memory" if any(map(_pins, thread.stacks)) else _OTHER


def _pins(stack: SeenStack) -> bool:
    return any(frame.function == _PIN for frame in stack.frames)
