"""Sampled stacks for other viewers: speedscope's JSON, and collapsed stacks for flame graphs."""

import json
from collections.abc import Iterator
from pathlib import Path

from feedline.profiler.errors import OutputError
from feedline.profiler.files import output
from feedline.profiler.store.run_folder import Run
from feedline.profiler.store.sampled_stacks import ProcessStacks, SampledStack, StackFrame
from feedline.profiler.store.stacks_reader import read_stacks

_SPEEDSCOPE, _COLLAPSED = ".speedscope.json", ".collapsed"
_SCHEMA = "https://www.speedscope.app/file-format-schema.json"


def is_stacks(path: Path) -> bool:
    """Return whether a file's name asks for sampled stacks."""
    return path.name.endswith((_SPEEDSCOPE, _COLLAPSED))


def write(run: Run, path: Path) -> None:
    """Write the stacks of all ranks into a file that the user named; an older one is replaced.

    Raises:
        OutputError: no stacks were sampled, or the file cannot be written.
    """
    processes = [
        (f"rank {number}: {process.process}" if len(run.ranks) > 1 else process.process, process)
        for number, rank in sorted(run.ranks.items())
        for process in read_stacks(rank)
    ]
    if not any(process.stacks for _, process in processes):
        why = next((f" ({one.refused})" for _, one in processes if one.refused), "")
        raise OutputError(
            f"{path}: no stacks were sampled in {run.name}{why}: record the training again"
        )
    text = (
        collapsed(processes) if path.name.endswith(_COLLAPSED) else speedscope(processes, run.name)
    )
    output.save(path, text)


def collapsed(processes: list[tuple[str, ProcessStacks]]) -> str:
    """Return one line for each stack: names from the outside in, and how many milliseconds."""
    lines = [
        f"{';'.join([name, stack.thread, *map(_named, stack.frames)])} {round(stack.seconds * 1e3)}"
        for name, process in processes
        for stack in process.stacks
        if stack.seconds >= 5e-4
    ]
    return "\n".join(lines) + "\n"


def speedscope(processes: list[tuple[str, ProcessStacks]], name: str) -> str:
    """Return a file of speedscope with a profile for each thread of each process."""
    index: dict[StackFrame, int] = {}
    profiles = [
        _profile(f"{process_name}, {thread}", stacks, index)
        for process_name, process in processes
        for thread, stacks in _by_thread(process)
    ]
    frames = [{"name": frame.function, "file": frame.file, "line": frame.line} for frame in index]
    file = {
        "$schema": _SCHEMA,
        "name": name,
        "exporter": "feedline",
        "shared": {"frames": frames},
        "profiles": profiles,
    }
    return json.dumps(file)


def _profile(
    name: str, stacks: list[SampledStack], index: dict[StackFrame, int]
) -> dict[str, object]:
    return {
        "type": "sampled",
        "name": name,
        "unit": "seconds",
        "startValue": 0,
        "endValue": sum(stack.seconds for stack in stacks),
        "samples": [
            [index.setdefault(frame, len(index)) for frame in stack.frames] for stack in stacks
        ],
        "weights": [stack.seconds for stack in stacks],
    }


def _by_thread(process: ProcessStacks) -> Iterator[tuple[str, list[SampledStack]]]:
    for thread in dict.fromkeys(stack.thread for stack in process.stacks):
        yield thread, [stack for stack in process.stacks if stack.thread == thread]


def _named(frame: StackFrame) -> str:
    return f"{frame.function} ({frame.file}:{frame.line})".replace(";", ":")
