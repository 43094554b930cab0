"""Files named by the user: ``-o FILE``, ``--json FILE``."""

import os
import stat
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

from feedline.profiler.errors import OVERWRITE, OutputError, PlaceTaken, WayOut
from feedline.profiler.files import single

SHARED = 0o666  # less the umask: reports are made to be passed on
ANOTHER = WayOut("name another file", "pass another path")


def refuse_taken(path: Path | None, force: bool) -> None:
    """Check before any work that a file may be written.

    Args:
        path: None: no file was asked for.
        force: the user said -f.

    Raises:
        OutputError: the name is taken, or its folder is missing.
    """
    if path is None or _is_stream(path):
        return
    if not path.absolute().parent.is_dir():
        raise OutputError(f"the folder {path.parent} does not exist", "create it", ANOTHER)
    if not os.path.lexists(path):
        return
    if not single.is_regular(path):
        what = "a link" if path.is_symlink() else "a folder" if path.is_dir() else "a device"
        raise OutputError(f"{path} is {what}: name a file")
    if not force:
        raise PlaceTaken.exists(path, ANOTHER, OVERWRITE)


def save(path: Path, text: str | bytes) -> None:
    """Write a whole file that ``refuse_taken`` allowed. Raises as ``replacing``."""
    with replacing(path) as file:
        file.write(text.encode("utf-8", "backslashreplace") if isinstance(text, str) else text)


@contextmanager
def replacing(path: Path) -> Iterator[BinaryIO]:
    """Open a file that ``refuse_taken`` allowed; it is put in place at the end of the block.

    Raises:
        OutputError: the place is read-only or full.
    """
    try:
        with _stream(path) if _is_stream(path) else single.replacing(path, SHARED) as file:
            yield file
    except OSError as error:
        raise OutputError.unwritable(path, error, ANOTHER) from error


def _stream(path: Path) -> BinaryIO:
    """Open one to write on. There may be a file behind its name, to which others write too."""
    sys.stdout.flush()
    sys.stderr.flush()
    return open(os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CLOEXEC), "wb")


def _is_stream(path: Path) -> bool:
    """Return whether a name is a pipe, a terminal, /dev/null or an open descriptor.

    It is written on, and nothing of it overwritten.
    """
    if path.parent in (Path("/dev/fd"), Path("/proc/self/fd")) or path in (
        Path("/dev/stdout"),
        Path("/dev/stderr"),
    ):
        return True
    try:
        mode = os.stat(path).st_mode
    except OSError:
        return False
    return stat.S_ISFIFO(mode) or stat.S_ISCHR(mode)
