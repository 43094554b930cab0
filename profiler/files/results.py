"""Folders for the results of commands (``compare -o``, ``scale -o``).

They may also contain files of the user's, which are kept.
"""

import os
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from feedline.profiler.errors import ELSEWHERE, OutputError, PlaceTaken
from feedline.profiler.files import output, own_folders, owned, single


def prepare(folder: Path, names: Iterable[str], force: bool) -> bool:
    """Create the folder, and check before any work that these names may be written in it.

    Args:
        folder: for the results.
        names: to be written.
        force: results of an earlier time may be replaced; files that feedline did not write never
            are.

    Returns:
        Whether the folder is a new one.

    Raises:
        OutputError: a name is taken, or the folder cannot be made.
    """
    new = not os.path.lexists(folder)
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise OutputError.unwritable(f"the folder {folder}", error, ELSEWHERE) from error
    ours = own_folders.read_list(folder)
    for path in (folder / name for name in names):
        if os.path.lexists(path) and (ours is None or path.name not in ours.names):
            raise PlaceTaken.foreign(path)
        if os.path.lexists(path) and not force:
            raise PlaceTaken.exists(path)
    return new


def save(folder: Path, name: str, text: str) -> Path:
    """Write one of the prepared names.

    Raises:
        OutputError: it was taken meanwhile, or the place is read-only or full.
    """
    with _output_errors(folder / name):
        owned.write(folder, name, text, output.SHARED)
    return folder / name


def log(folder: Path, name: str) -> int:
    """Return an empty log file, open for the output of a program; the caller owns the descriptor.

    Raises as ``save``.
    """
    with _output_errors(folder / name):
        return owned.restart(folder, name, output.SHARED)


def add_line(folder: Path, name: str, line: str) -> None:
    """Append a line to a file of feedline's. Raises as ``save``."""
    with _output_errors(folder / name):
        fd = owned.reopen(folder, name, output.SHARED)
        try:
            os.lseek(fd, 0, os.SEEK_END)
            os.write(fd, line.encode() + b"\n")
        finally:
            os.close(fd)


@contextmanager
def run_folder(run: Path) -> Iterator[None]:
    """Make an empty folder for a run, before the training that may write in it.

    It is not made beside the training. One that stays empty is removed again.

    Raises:
        OutputError: an older run cannot be removed, or the folder cannot be made.
    """
    with _output_errors(run):
        drop_empty(run)  # left by a killed command
        if os.path.lexists(run):
            own_folders.remove(run, "run")
        run.mkdir(owned.PRIVATE)
    try:
        yield
    finally:
        drop_empty(run)


def drop_empty(folder: Path) -> None:
    """Remove a results folder if it is empty."""
    with suppress(OSError):
        listing = own_folders.read_list(folder)
        if (
            listing is not None
            and listing.kind == own_folders.RESULTS_KIND
            and os.listdir(folder) == [own_folders.LIST_NAME]
        ):
            single.remove(folder / own_folders.LIST_NAME)
        os.rmdir(folder)


@contextmanager
def _output_errors(path: Path) -> Iterator[None]:
    """Raise OutputError where the operating system refuses to write."""
    try:
        yield
    except OSError as error:
        raise OutputError.unwritable(path, error, ELSEWHERE) from error
