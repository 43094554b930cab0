"""Notes of this process about itself, in the run folder."""

import os
import sys
from pathlib import Path

from feedline.profiler import proc
from feedline.profiler.follow.asked import Asked
from feedline.profiler.record import privacy
from feedline.profiler.store import processes


def note(asked: Asked, **what: str) -> None:
    """Note what this process did: ``imported="torch"``, ``recorded=`` its folder, or ``unseen=`` why it has none."""
    command = privacy.recorded_argv(sys.argv, asked.record_argv)
    about = {"pid": os.getpid(), "started": proc.started(os.getpid()), "command": command}
    processes.write(Path(asked.run), {**about, **what})  # type: ignore[typeddict-item]


def note_end(asked: Asked, pid: int, by: str) -> None:
    """Write down that this process is about to end another one, if that is still there."""
    if started := proc.started(pid):
        processes.write(Path(asked.run), {"pid": pid, "started": started, "ended_by": by})
