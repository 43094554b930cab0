"""Which processes of a watched training compute, which make batches, and which only start others."""

import re
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from itertools import count
from pathlib import Path
from typing import TypeVar

from feedline.analysis.measure.code_places import (
    BACKWARD,
    FORWARD,
    MAKING,
    OPTIMIZER,
    WAIT,
    is_worker_loop,
    origin,
    standing,
)
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
#: Functions of Python in which a process waits for one that it has started.
_WAITS_FOR = {
    "multiprocessing/process.py": ("join",),
    "subprocess.py": ("wait", "communicate", "run"),
}
_SOME_CPU = 0.05  # CPUs that a process uses at least which does not only wait
_MODEL = (FORWARD, BACKWARD, OPTIMIZER)
_STEPS = (WAIT, *MAKING, *_MODEL)
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
        beside: that were started beside all ranks, such as a monitor.
        numbers: of the workers, as their loader counts them; empty: as they began.
    """

    number: int | None
    main: WatchedProcess
    workers: list[WatchedProcess] = field(default_factory=list)
    others: list[WatchedProcess] = field(default_factory=list)
    beside: list[WatchedProcess] = field(default_factory=list)
    numbers: Sequence[int] = ()

    @property
    def processes(self) -> list[tuple[str, WatchedProcess]]:
        """Name and process: of the main process, the workers, the others, and those beside it."""
        several = self.number is not None
        of = f" of rank {self.number}" if several else ""
        return [
            (f"rank {self.number}" if several else "the main process", self.main),
            *(
                (f"worker {number}{of}", worker)
                for number, worker in zip(self.numbers or count(), self.workers)
            ),
            *((f"process {other.pid}", other) for other in (*self.others, *self.beside)),
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
    above = {process.pid: _above(process, by_pid, watched.pid) for process in watched.processes}
    beside = _only_start_others(watched.processes, roles, above)
    mains: dict[int, WatchedRank] = {}
    for process in watched.processes:
        owner = next((mains[pid] for pid in above[process.pid] if pid in mains), None)
        if process.pid in beside:
            continue
        if owner is None:
            if roles[process.pid] == _OTHER and process.main_thread is not None:
                mains[process.pid] = WatchedRank(process.rank, _by_what_trains(process))
        elif roles[process.pid] == WORKER or process.name == _WORKER_NAME:
            owner.workers.append(process)
        elif roles[process.pid] == _OTHER:
            owner.others.append(process)
    for rank in list(mains.values())[:1]:
        rank.beside += [by_pid[pid] for pid in beside]
    for rank in mains.values():
        rank.workers.sort(key=lambda process: (process.begun_s, process.pid))
    ranks = sorted(mains.values(), key=lambda rank: (rank.number is None, rank.number or 0))
    for number, rank in enumerate(ranks):
        if len(ranks) == 1:
            rank.number = None
        elif rank.number is None:
            rank.number = number
    return ranks


def _only_start_others(
    processes: Sequence[WatchedProcess], roles: dict[int, str], above: dict[int, list[int]]
) -> list[int]:
    """Change the roles of processes that only wait for what they have started, as a launcher does.

    Return what they have started beside a training, such as a monitor.
    """
    beside: list[int] = []
    for parent in processes:
        if roles[parent.pid] != _OTHER or not _waits_for_others(parent):
            continue
        below = [
            process
            for process in processes
            if parent.pid in above[process.pid]
            and roles[process.pid] == _OTHER
            and process.name != _WORKER_NAME
            and process.main_thread is not None
        ]
        runs = [process for process in below if not process.ended]
        trains = _with_ranks(parent, below, above)
        trains = trains or [process.pid for process in runs if _uses_torch(process)]
        trains = trains or [process.pid for process in runs if _computes(process)]
        if trains:
            roles[parent.pid] = _LAUNCHER
            beside += [
                process.pid
                for process in below
                if process.pid not in (*trains, *beside)
                and not any(process.pid in above[pid] for pid in trains)
                and not any(pid in above[process.pid] for pid in trains)
            ]
    return beside


def _with_ranks(
    parent: WatchedProcess, below: Sequence[WatchedProcess], above: dict[int, list[int]]
) -> list[int]:
    """Return the processes that were given ranks, each its own; inherited ones do not count."""
    all_ranks = {
        process.pid: (process.launcher, process.rank)
        for process in below
        if process.rank is not None
    }
    ranks = {
        pid: rank
        for pid, rank in all_ranks.items()
        if all(all_ranks.get(one) != rank for one in above[pid])
    }
    # a launcher that srun or mpirun started has a rank too, perhaps the number that its only child
    # has: what it launches has others, or has them from it
    inherited = set(ranks.values()) == {(parent.launcher, parent.rank)}
    return list(ranks) if not inherited and len(set(ranks.values())) == len(ranks) else []


def _waits_for_others(process: WatchedProcess) -> bool:
    stacks = process.main_thread.stacks if process.main_thread else ()
    waits = sum(stack.samples for stack in stacks if any(map(_waits, inside_process(stack.frames))))
    return waits * 2 > sum(stack.samples for stack in stacks)


def _waits(frame: Place) -> bool:
    whose = origin(frame.file)
    functions = _WAITS_FOR.get(whose.tail, ()) if whose.owner == PYTHON else ()
    return frame.function.rpartition(".")[2] in functions


def _uses_torch(process: WatchedProcess) -> bool:
    return any(
        origin(frame.file).owner == "torch"
        for thread in process.threads
        for stack in thread.stacks
        for frame in inside_process(stack.frames)
    )


def _computes(process: WatchedProcess) -> bool:
    return process.usage.cpu_s > _SOME_CPU * process.seconds


def _by_what_trains(process: WatchedProcess) -> WatchedProcess:
    """Return a process with the thread that trains as its main thread."""
    if any(_steps(thread, process.folder)[1] for thread in process.threads if thread.is_main):
        return process
    trains = max(process.threads, key=lambda thread: _steps(thread, process.folder))
    if not _steps(trains, process.folder)[1]:
        return process
    threads = tuple(replace(thread, is_main=thread is trains) for thread in process.threads)
    return replace(process, threads=threads)


def _steps(thread: WatchedThread, folder: str) -> tuple[int, int]:
    """Return how often a thread was seen to compute with a model, and to do anything of a step."""
    places = [
        (standing(frames_of(inside_process(stack.frames), folder)).place, stack.samples)
        for stack in thread.stacks
    ]
    return (
        sum(samples for place, samples in places if place in _MODEL),
        sum(samples for place, samples in places if place in _STEPS),
    )


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
    name = file[len(folder) + 1 :] if below else masks.source(file)
    return name.encode("utf-8", "backslashreplace").decode()  # it may not be UTF-8


def _whole(file: str, folder: str) -> str:
    is_path = file and not file.startswith(("/", "<"))
    return str(Path(folder) / file) if is_path and folder else file


def _role(process: WatchedProcess) -> str:
    thread = process.main_thread
    if thread is None:
        return _OTHER
    frames = [frame for stack in thread.stacks for frame in inside_process(stack.frames)]
    if any(is_worker_loop(frame.file, frame.function) for frame in frames):
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


def _above(process: WatchedProcess, by_pid: dict[int, WatchedProcess], named: int) -> list[int]:
    """Return the processes that a process is below; all are below the one that was named."""
    above: list[int] = []
    while process.parent in by_pid and process.parent not in above:
        above.append(process.parent)
        process = by_pid[process.parent]
    # there may be a shell between them, which is not watched
    return [*above, named] if named in by_pid and named not in (*above, process.pid) else above


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
