"""Gives each process a segment's file of its own; one that an ended process has left is continued.

The file's lock says whether it is left. Where the file system knows no locks, its header names the
process that writes to it, and one that cannot be asked for, as on another machine, counts as alive.
"""

import fcntl
import itertools
import os
from pathlib import Path

from feedline.profiler import proc
from feedline.profiler.errors import PlaceTaken
from feedline.profiler.files import owned
from feedline.profiler.files.own_folders import lock, turn
from feedline.profiler.store.layout import PAGE, RECORDS_AT, header_of, page_of

_OWNER = "owner"  # key in the header: pid; started: clock ticks since boot; home: proc.home()


def own_file(path: Path, header: dict[str, object]) -> tuple[Path, int]:
    """Open ``path``, or ``path`` with a number if a live process holds it, and write its header.

    The lock is released with the process, however it ends.

    Raises:
        OSError: the file cannot be made, or the disk is full.
    """
    owned.ensure(path.parent)
    for number in itertools.count():
        candidate = path if number == 0 else path.with_stem(f"{path.stem}.{number}")
        try:
            fd = owned.reopen(path.parent, candidate.name)
        except PlaceTaken:
            continue
        try:
            if _taken(candidate, fd, header):
                return candidate, fd
        except BaseException:
            os.close(fd)
            raise
        os.close(fd)
    raise AssertionError("unreachable")


def _taken(path: Path, fd: int, header: dict[str, object]) -> bool:
    """Take a file unless a live process has it; return whether this one has it now."""
    try:
        if lock(fd, fcntl.LOCK_EX):
            _begin(fd, header)
            return True
    except BlockingIOError:
        return False
    # of two workers that find the same file left, one takes it
    with turn(path) as ours:
        if not ours or not _is_left(os.pread(fd, PAGE, 0)):
            return False
        own = os.getpid()
        owner = {"pid": own, "started": proc.started(own), "home": proc.home()}
        _begin(fd, {**header, _OWNER: owner})
        return True


def _begin(fd: int, header: dict[str, object]) -> None:
    page = page_of(header)
    if os.fstat(fd).st_size < RECORDS_AT:
        os.posix_fallocate(fd, 0, RECORDS_AT)
    os.pwrite(fd, page, 0)


def _is_left(page: bytes) -> bool:
    """Return whether the process that a file's first page names has ended; False: nothing tells."""
    if not page.strip(b"\0"):  # who writes to a file has its header in it before its turn ends
        return True
    try:
        owner = header_of(page)[_OWNER]
        here: bool = owner["home"] == proc.home() != ""
        return here and _has_ended(owner["pid"], owner["started"])
    except (ValueError, LookupError, TypeError, OverflowError, RecursionError):
        return False


def _has_ended(pid: int, started: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return True
    except PermissionError:  # another user's: alive
        pass
    now = proc.started(pid)
    return now != started and 0 not in (now, started)  # 0: unknown
