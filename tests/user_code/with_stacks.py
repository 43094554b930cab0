"""A kept run with made-up stacks: what was seen of its main process and its first worker."""

import shutil
from collections.abc import Iterable
from pathlib import Path

from user_code.made_stacks import Frame

from feedline.profiler.stacks.helper import _StackLog
from feedline.profiler.stacks.thread_stacks import Place
from feedline.profiler.store.run_folder import Rank, Run

RUN = Path(__file__).parents[1] / "golden" / "runs" / "loader"
WORKER = "loader0-worker0"
#: Process, frames as in made_stacks.py, and how often they were seen.
Seen = tuple[str, list[Frame], int]


def run_with(seen: Iterable[Seen], folder: Path, stretches: int = 10) -> Path:
    """A copy of the run in which these stacks were seen while it trained, 10 ms apart each.

    Args:
        folder: that the copy becomes.
        stretches: of time in which each of them was seen.
    """
    shutil.copytree(RUN, folder)
    rank = Run.of_folder(folder).ranks[0]
    begin, end = loop_of(rank)
    log = _StackLog(rank.folder)
    numbers: dict[str, int] = {}
    for stretch in range(stretches):
        for process, frames, samples in seen:
            if process not in numbers:
                numbers[process] = log.process(process, 7 + len(numbers))
            stack = tuple(Place(file, name, line) for file, line, name in reversed(frames))
            for _ in range(samples):
                log.add(numbers[process], "main", stack, 10_000_000)
        step = (end - begin) // stretches
        log.group(begin + stretch * step, begin + (stretch + 1) * step)
    log.end()
    return folder


def loop_of(rank: Rank) -> tuple[int, int]:
    """From its first batch to its last update, ns."""
    records = rank.main.records
    return int(records["start"].min()), int((records["start"] + records["wall"]).max())
