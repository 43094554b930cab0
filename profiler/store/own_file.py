"""A file that only one live process appends to."""

import fcntl
import itertools
import os
from pathlib import Path

from feedline.profiler.errors import PlaceTaken
from feedline.profiler.files import owned


def own_file(path: Path) -> tuple[Path, int]:
    """Open ``path``, or ``path`` with a number if a live process holds it. The lock is released with the process, however it ends."""
    owned.ensure(path.parent)
    for number in itertools.count():
        candidate = path if number == 0 else path.with_stem(f"{path.stem}.{number}")
        try:
            fd = owned.reopen(path.parent, candidate.name)
        except PlaceTaken:
            continue
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return candidate, fd
        except OSError:
            os.close(fd)
    raise AssertionError("unreachable")
