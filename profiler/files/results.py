"""Folders that commands write their results into (``compare -o``, ``scale -o``). They may hold other files of the user's, which stay."""

import os
from collections.abc import Iterable
from pathlib import Path

from feedline.profiler.errors import OutputError, PlaceTaken
from feedline.profiler.files import lists, output, owned


def prepare(folder: Path, names: Iterable[str], force: bool) -> None:
    """Make the folder, and see before any work that these names may be written in it.

    Args:
        force: results of an earlier time may be replaced; files that feedline did not write never are.

    Raises:
        OutputError: a name is taken, or the folder cannot be made.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise OutputError(f"{folder} cannot be made ({error.strerror}): name another folder with -o") from error
    ours = lists.read_list(folder)
    for path in (folder / name for name in names):
        if os.path.lexists(path) and (ours is None or path.name not in ours.names):
            raise PlaceTaken(f"{path} exists already and feedline did not write it: name another folder with -o")
        if os.path.lexists(path) and not force:
            raise PlaceTaken(f"{path} exists already: name another folder with -o, or overwrite it with -f")


def save(folder: Path, name: str, text: str) -> Path:
    """Write one of the names that were prepared.

    Raises:
        OutputError: it was taken meanwhile, or the place is read-only or full.
    """
    try:
        owned.write(folder, name, text, output.SHARED)
    except OSError as error:
        raise OutputError(f"{folder / name} cannot be written ({error.strerror}): name another folder with -o") from error
    return folder / name


def log(folder: Path, name: str) -> int:
    """An empty file, open for what a program prints; the descriptor is the caller's. Raises as ``save``."""
    try:
        return owned.restart(folder, name, output.SHARED)
    except OSError as error:
        raise OutputError(f"{folder / name} cannot be written ({error.strerror}): name another folder with -o") from error


def add_line(folder: Path, name: str, line: str) -> None:
    """Add a line to a file of ours that keeps growing. Raises as ``save``."""
    try:
        fd = owned.reopen(folder, name, output.SHARED)
        try:
            os.lseek(fd, 0, os.SEEK_END)
            os.write(fd, line.encode() + b"\n")
        finally:
            os.close(fd)
    except OSError as error:
        raise OutputError(f"{folder / name} cannot be written ({error.strerror}): name another folder with -o") from error
