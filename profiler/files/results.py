"""Folders that commands write their results into (``compare -o``, ``scale -o``). They may hold other files of the user's, which stay."""

import os
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from feedline.profiler.errors import ELSEWHERE, OutputError, PlaceTaken
from feedline.profiler.files import lists, output, owned, single


def prepare(folder: Path, names: Iterable[str], force: bool) -> bool:
    """Make the folder, and see before any work that these names may be written in it. Returns whether the folder is a new one.

    Args:
        force: results of an earlier time may be replaced; files that feedline did not write never are.

    Raises:
        OutputError: a name is taken, or the folder cannot be made.
    """
    new = not os.path.lexists(folder)
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise OutputError.unwritable(f"the folder {folder}", error, ELSEWHERE) from error
    ours = lists.read_list(folder)
    for path in (folder / name for name in names):
        if os.path.lexists(path) and (ours is None or path.name not in ours.names):
            raise PlaceTaken.foreign(path)
        if os.path.lexists(path) and not force:
            raise PlaceTaken.exists(path)
    return new


def save(folder: Path, name: str, text: str) -> Path:
    """Write one of the names that were prepared. Raises OutputError: it was taken meanwhile, or the place is read-only or full."""
    with _told(folder / name):
        owned.write(folder, name, text, output.SHARED)
    return folder / name


def log(folder: Path, name: str) -> int:
    """An empty file, open for what a program prints; the descriptor is the caller's. Raises as ``save``."""
    with _told(folder / name):
        return owned.restart(folder, name, output.SHARED)


def add_line(folder: Path, name: str, line: str) -> None:
    """Add a line to a file of ours that keeps growing. Raises as ``save``."""
    with _told(folder / name):
        fd = owned.reopen(folder, name, output.SHARED)
        try:
            os.lseek(fd, 0, os.SEEK_END)
            os.write(fd, line.encode() + b"\n")
        finally:
            os.close(fd)


def drop_empty(folder: Path) -> None:
    """Remove a folder that was made for results and got none; one that holds anything stays."""
    with suppress(OSError):
        listing = lists.read_list(folder)
        if listing is not None and listing.kind == lists.RESULTS and os.listdir(folder) == [lists.LIST]:
            single.remove(folder / lists.LIST)
        os.rmdir(folder)


@contextmanager
def _told(path: Path) -> Iterator[None]:
    """Raise OutputError where the operating system refuses to write."""
    try:
        yield
    except OSError as error:
        raise OutputError.unwritable(path, error, ELSEWHERE) from error
