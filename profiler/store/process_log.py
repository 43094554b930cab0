"""processes.jsonl in a run folder.

It has the Python processes below the program's own, one line per observation.
"""

import json
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from feedline.profiler import proc
from feedline.profiler.errors import OutputError, RunDamaged
from feedline.profiler.files import owned
from feedline.profiler.files.bounded import MOST_JSON, OF_RUN, json_of, whole
from feedline.profiler.message import few

if TYPE_CHECKING:  # msgspec is for readers
    from feedline.profiler.store.shapes import LineShape

PROCESSES_FILE = "processes.jsonl"
_MAX_NAMED = 5  # processes that a note names
_COMMAND_WORDS = 6  # of a command


@dataclass
class _SeenProcess:
    """A process.

    Attributes:
        started: clock ticks since boot.
        command: masked.
        recorded: its folders in the run folder.
        why_unrecorded: why it is not recorded although it uses torch; empty: it is, or needed not
            be.
    """

    pid: int
    started: int
    command: list[str]
    recorded: list[str] = field(default_factory=list)
    why_unrecorded: str = ""

    def __str__(self) -> str:
        more = " ..." if len(self.command) > _COMMAND_WORDS else ""
        return f"{' '.join(self.command[:_COMMAND_WORDS])}{more} (pid {self.pid})"


def write(run: Path, line: "LineShape") -> None:
    """Add a line. A run folder that is missing or not writable gets none."""
    with suppress(OSError, OutputError):
        owned.add_line(run, PROCESSES_FILE, json.dumps(line))


def read(run: Path) -> list[_SeenProcess]:
    """Return all processes, in order of appearance."""
    processes: dict[tuple[int, int], _SeenProcess] = {}
    for line in _lines(run):
        pid = line.get("pid", 0)
        if "ended_by" in line:
            continue
        seen = processes.setdefault(
            (pid, line.get("started", 0)),
            _SeenProcess(pid, line.get("started", 0), line.get("command", [])),
        )
        seen.recorded += [line["recorded"]] if "recorded" in line else []
        seen.why_unrecorded = seen.why_unrecorded or line.get("unseen", "")
    return list(processes.values())


def ended(run: Path) -> set[tuple[int, int]]:
    """Return (pid, started) of processes that their parent ended with a signal."""
    return {
        (line.get("pid", 0), line.get("started", 0)) for line in _lines(run) if "ended_by" in line
    }


def _lines(run: Path) -> "Iterator[LineShape]":
    """Return the lines; one that is damaged is left out."""
    from feedline.profiler.files.checking import checked
    from feedline.profiler.store.shapes import LineShape

    try:
        lines = whole(run / PROCESSES_FILE, MOST_JSON, OF_RUN).splitlines()
    except (OSError, RunDamaged):
        return
    for text in lines:
        with suppress(ValueError):
            yield checked(json_of(text), LineShape)


def notes(run: Path, trained: set[str], workers: set[int]) -> list[str]:
    """Return the notes of a report on the processes of a run.

    Args:
        run: the run folder.
        trained: folders of trainings in which steps were made.
        workers: pids of loaders' workers.
    """
    processes = [process for process in read(run) if process.pid not in workers]
    unrecorded = [
        process for process in processes if process.why_unrecorded and not process.recorded
    ]
    idle = [
        process
        for process in processes
        if not process.why_unrecorded
        and not trained.intersection(where.split("/")[0] for where in process.recorded)
    ]
    said = [
        f"not recorded: {process}: {process.why_unrecorded}" for process in unrecorded[:_MAX_NAMED]
    ]
    if len(unrecorded) > _MAX_NAMED:
        said.append(f"not recorded: {len(unrecorded) - _MAX_NAMED} more processes that use torch")
    still = [process for process in idle if proc.started(process.pid) == process.started != 0]
    if still:
        said.append(
            f"still running: {few(still, _MAX_NAMED)}; `feedline report` will show "
            f"{'them' if len(still) > 1 else 'it'} after the end"
        )
    idle = [process for process in idle if process not in still]
    if idle:
        said.append(
            f"{len(idle)} other process{'es' * (len(idle) > 1)} imported torch but made no "
            f"training step: {few(idle, _MAX_NAMED)}"
        )
    return said
