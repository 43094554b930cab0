"""Folders that feedline created, and the files in them."""

import errno
import fcntl
import os
import stat
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import BinaryIO

from feedline.profiler.deferred import deferred
from feedline.profiler.errors import ELSEWHERE, OVERWRITE, OutputError, PlaceTaken
from feedline.profiler.files import single
from feedline.profiler.files.own_folders import (
    INNER_KIND,
    LIST_NAME,
    MAX_NAMED,
    Busy,
    FolderList,
    add_to_list,
    begin_list,
    kind_with_article,
    listed_names,
    lock,
    no_process,
    read_list,
    remove,
)
from feedline.profiler.message import few

PRIVATE, SHARED = 0o700, 0o777
# how long another rank may take to replace the folder that this one is to replace too
_BUSY_S = 5.0
_UNMOVABLE = (errno.EBUSY, errno.EXDEV)  # a bind mount; a lower layer of overlayfs


def claim(path: Path, kind: str, launch: str = "", mode: int = PRIVATE) -> None:
    """Create a folder or take an empty one. A folder of the same kind and launch is joined.

    Raises:
        PlaceTaken: it holds something else.
        OSError: it cannot be made.
    """
    if not os.path.lexists(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        part = single.part_name(path)
        part.mkdir(mode)
        begin_list(part, kind, launch)
        try:
            os.rename(part, path)
            return
        except OSError as error:
            _drop_new(part)
            if error.errno not in (errno.EEXIST, errno.ENOTEMPTY, errno.ENOTDIR):
                raise
    if not path.is_dir():
        raise PlaceTaken(
            f"{path} is {'a broken link' if path.is_symlink() else 'a file'}", ELSEWHERE
        )
    if not os.listdir(path):
        with suppress(FileExistsError):
            begin_list(path, kind, launch)
            return
    listing = _settled_list(path)
    if listing is None:
        raise PlaceTaken(
            f"{path} holds files that feedline did not make "
            f"({few(sorted(os.listdir(path)), MAX_NAMED)})",
            ELSEWHERE,
        )
    if (listing.kind, listing.launch) != (kind, launch):
        # one of another kind is never replaced
        ways = (ELSEWHERE, OVERWRITE) if listing.kind == kind else (ELSEWHERE,)
        raise _Older(f"{path} already holds {kind_with_article(listing.kind)}", *ways)


def claim_within(folder: Path, name: str, kind: str, launch: str) -> None:
    """Claim a folder inside one of feedline's, as ``claim``.

    Raises as ``claim``.
    """
    claim(folder / name, kind, launch)
    if name not in listed_names(folder):
        _enlist(folder, name)


def replace(
    path: Path, kind: str, launch: str = "", in_use: Callable[[Path], bool] = no_process
) -> None:
    """Claim a folder as ``claim``, but remove an older folder of that kind first.

    The first of several ranks removes it, the others join.

    Args:
        path: the folder.
        kind: of the older one and of the new one.
        launch: whose ranks write into the new one.
        in_use: as for ``own_folders.remove``.

    Raises:
        PlaceTaken: it is of another kind, holds files of others, or a process uses it.
        OSError: it cannot be removed or made.
    """
    deadline = time.monotonic() + _BUSY_S
    while True:
        try:
            try:
                return claim(path, kind, launch)
            except _Older:
                remove(path, kind, in_use)
        except (Busy, FileNotFoundError):  # another rank is at it
            if time.monotonic() > deadline:
                raise
            time.sleep(0.02)


@contextmanager
def staging(path: Path, kind: str) -> Iterator[Path]:
    """Make a temporary folder beside ``path`` to fill.

    It is removed at the end if it is still there.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    part = single.part_name(path)
    part.mkdir(PRIVATE)
    begin_list(part, kind, "")
    try:
        yield part
    finally:
        with deferred(), suppress(OSError, OutputError):
            remove(part, kind)


def unmovable(path: Path, kind: str) -> str | None:
    """Return why the system would not rename a folder; None if nothing is known against it.

    The folder keeps its name: the one that is asked for belongs to a folder with a file in it,
    which no rename replaces, but what else forbids it is answered first.

    Raises OSError: nothing can be made beside it.
    """
    with deferred(), staging(path, kind) as taken:
        try:
            os.rename(path, taken)
        except OSError as error:
            sticky = os.stat(path.parent).st_mode & stat.S_ISVTX
            # other answers than these, on SMB or FUSE, may be about the name that is taken
            if error.errno in _UNMOVABLE or (error.errno == errno.EPERM and sticky):
                return error.strerror
        else:
            os.rename(taken, path)  # a file system that replaces even such a folder
    return None


def put(
    made: Path,
    path: Path,
    kind: str,
    force: bool,
    in_use: Callable[[Path], bool] = no_process,
) -> None:
    """Give a complete folder its final name.

    With ``force``, an older one of that kind is removed first.

    Args:
        in_use: as for ``own_folders.remove``.

    Raises:
        PlaceTaken: the name is taken, or the older one may not be removed.
        OSError: it cannot be made.
    """
    if (
        os.path.lexists(path)
        and force
        and (path.is_symlink() or not path.is_dir() or os.listdir(path))
    ):
        remove(path, kind, in_use)
    try:
        os.rename(made, path)
    except OSError as error:
        if error.errno in (errno.EEXIST, errno.ENOTEMPTY, errno.ENOTDIR):
            raise PlaceTaken.exists(path) from error
        raise


def subfolder(folder: Path, name: str) -> Path:
    """Create a folder inside one of feedline's.

    Raises:
        FileExistsError: the name is taken.
        OSError: the place is read-only or full.
    """
    made = folder / name
    made.mkdir(PRIVATE)
    begin_list(made, INNER_KIND, "")
    _enlist(folder, name)
    return made


def ensure(folder: Path) -> None:
    """Create a folder and missing parents; each is listed in its parent. Raises OSError."""
    if not folder.is_dir():
        ensure(folder.parent)
        with suppress(FileExistsError):  # another process was faster
            subfolder(folder.parent, folder.name)


def move(made: Path, folder: Path, name: str) -> None:
    """Move one of feedline's folders into another one. Raises OSError."""
    os.rename(made, folder / name)
    _enlist(folder, name)


def create(folder: Path, name: str, mode: int = single.PRIVATE_MODE) -> int:
    """Return a new file in one of feedline's folders, open for reading and writing.

    Raises as ``single.create``.
    """
    with deferred():
        fd = single.create(folder / name, mode)
        try:
            _enlist(folder, name)
        except BaseException:
            os.close(fd)
            raise
    return fd


def reopen(folder: Path, name: str, mode: int = single.PRIVATE_MODE) -> int:
    """Return a listed file, open for reading and writing; a new one if it is missing.

    Raises:
        PlaceTaken: the file is not feedline's.
        OSError: it is a link, or cannot be opened.
    """
    with suppress(FileExistsError):
        return create(folder, name, mode)
    _see_that_ours(folder, name)
    return single.reopen(folder / name)


@contextmanager
def replacing(folder: Path, name: str, mode: int = single.PRIVATE_MODE) -> Iterator[BinaryIO]:
    """Open a file in one of feedline's folders.

    It is put in place under its name at the end of the block.

    Raises:
        PlaceTaken: the name belongs to a file that feedline did not write.
        OSError: the place is read-only or full.
    """
    path, new = folder / name, not os.path.lexists(folder / name)
    if not new:
        _see_that_ours(folder, name)
    with ExitStack() as stack:
        yield stack.enter_context(single.replacing(path, mode))
        _put(stack, folder, name, new)


def write(folder: Path, name: str, data: bytes | str, mode: int = single.PRIVATE_MODE) -> None:
    """Write a whole file into one of feedline's folders. Raises as ``replacing``."""
    with replacing(folder, name, mode) as file:
        file.write(data.encode() if isinstance(data, str) else data)


def append(
    folder: Path, name: str, keep_bytes: int, mode: int = single.PRIVATE_MODE, buffering: int = 0
) -> BinaryIO:
    """Return a file of feedline's, truncated to ``keep_bytes`` and open for appending.

    Raises as ``reopen``.
    """
    file = os.fdopen(reopen(folder, name, mode), "r+b", buffering)
    file.truncate(keep_bytes)
    file.seek(keep_bytes)
    return file


def add_line(folder: Path, name: str, line: str) -> None:
    """Add a line to a file of feedline's.

    It is one write, so that several processes can do so at once.

    Raises:
        PlaceTaken: the file is not feedline's.
        OSError: it is a link, or cannot be opened.
    """
    try:
        fd = create(folder, name)
    except FileExistsError:
        _see_that_ours(folder, name)
        fd = single.reopen(folder / name)
    with os.fdopen(fd, "r+b", 0) as file:
        locked = lock(fd, fcntl.LOCK_EX, wait=True)
        try:
            file.seek(0, os.SEEK_END)
            file.write(line.encode() + b"\n")
        finally:
            # a process that another thread has forked meanwhile has the file too, and keeps the
            # lock as long as it has it, if closing the file here is all that gives it back
            if locked:
                fcntl.flock(fd, fcntl.LOCK_UN)


def restart(folder: Path, name: str, mode: int = single.PRIVATE_MODE) -> int:
    """Open an empty file in place of a listed one, for writing.

    Readers of the old one are not disturbed.

    Raises:
        PlaceTaken: the name belongs to a file that feedline did not write.
        OSError: the place is read-only or full.
    """
    discard(folder, name)
    try:
        return create(folder, name, mode)
    except FileExistsError:
        _see_that_ours(folder, name)
        raise


def discard(folder: Path, name: str) -> None:
    """Remove a file if it is listed. Raises OSError."""
    listing = read_list(folder)
    if listing is not None and name in listing.names:
        single.remove(folder / name)


class _Older(PlaceTaken):
    """An older folder of feedline's has this name."""


def _settled_list(folder: Path) -> FolderList | None:
    """Read the list as ``read_list``, once another process that begins the folder has made it."""
    deadline = time.monotonic() + _BUSY_S
    while (
        (listing := read_list(folder)) is None
        and os.listdir(folder) == [LIST_NAME]
        and time.monotonic() < deadline
    ):
        time.sleep(0.01)
    return listing


def _put(written: ExitStack, folder: Path, name: str, new: bool) -> None:
    """Put a file in place, and add its name to the list: Ctrl-C does not come in between."""
    with deferred():
        written.close()
        if new:
            _enlist(folder, name)


def _enlist(folder: Path, name: str) -> None:
    """Add a name to the list, or take back the new file.

    One that is not listed would be in the way for good.
    """
    try:
        add_to_list(folder, name)
    except OSError:
        with suppress(OSError):
            single.remove(folder / name)
        raise


def _see_that_ours(folder: Path, name: str) -> None:
    listing = read_list(folder)
    if listing is None or name not in listing.names:
        raise PlaceTaken.foreign(folder / name, "move it away")


def _drop_new(folder: Path) -> None:
    os.unlink(folder / LIST_NAME)
    os.rmdir(folder)
