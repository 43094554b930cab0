"""What this process says of itself in the run folder."""

import os
import sys
from pathlib import Path

from feedline.profiler.record import privacy
from feedline.profiler.store import processes
from feedline.profiler.store.manifest import process_started


def note(run: Path, **what: str) -> None:
    """Write down what this process did: ``imported="torch"``, or ``recorded=`` its folder in the run folder."""
    about = processes.Line(pid=os.getpid(), started=process_started(os.getpid()), command=privacy.mask_argv(sys.argv))
    processes.write(run, {**about, **what})  # type: ignore[typeddict-item]
