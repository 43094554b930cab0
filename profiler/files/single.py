"""Creates, replaces and removes a single file.

Links are not followed, and only regular files are ever replaced or removed.
"""

import errno
import itertools
import os
import stat
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO

# prefix of incomplete files; the extension stays, because libraries choose the format by it
PART = ".feedline-part-"
PRIVATE_MODE = 0o600
# characters of a name, so that it fits into 255 bytes with what is put before it
_LONGEST_NAME = 40
_numbers = itertools.count()


def create(path: Path, mode: int = PRIVATE_MODE) -> int:
    """Create a file and open it for reading and writing; the caller owns the descriptor.

    Raises:
        FileExistsError: the name is taken, if only by a link.
        OSError: the place is read-only or full.
    """
    return os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, mode)


def reopen(path: Path) -> int:
    """Open an existing file for writing; the caller owns the descriptor.

    Raises:
        OSError: it is missing, a link, no regular file, or has a second name somewhere.
    """
    fd = os.open(path, os.O_RDWR | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    about = os.fstat(fd)
    if stat.S_ISREG(about.st_mode) and about.st_nlink == 1:
        return fd
    os.close(fd)
    raise OSError(errno.EINVAL, "not a regular file, or a hard link", str(path))


@contextmanager
def replacement(path: Path, mode: int = PRIVATE_MODE) -> Iterator[int]:
    """Open a new file that is renamed to ``path`` at the end of the block.

    The caller then owns the descriptor.

    Raises:
        OSError: the place is read-only or full, or the name belongs to a link, a folder or a
            device. Nothing has changed then.
    """
    part, fd = _new_part(path, mode)
    try:
        yield fd
        _settle(part, path)
    except BaseException:
        os.close(fd)
        with suppress(OSError):
            os.unlink(part)
        raise


@contextmanager
def replacing(path: Path, mode: int = PRIVATE_MODE) -> Iterator[BinaryIO]:
    """Open as ``replacement``, with a file object that is closed at the end."""
    with replacement(path, mode) as fd:
        file = os.fdopen(fd, "w+b", closefd=False)
        try:
            yield file
            file.flush()
        finally:
            # or what a failed write left in the buffer reaches whatever file gets this descriptor
            # next
            file.raw.close()
    os.close(fd)


@contextmanager
def replacing_path(path: Path, mode: int = PRIVATE_MODE) -> Iterator[Path]:
    """Open as ``replacement``, for libraries that open a file by path.

    It yields the path to give them.
    """
    part, fd = _new_part(path, mode)
    os.close(fd)
    try:
        yield part
        _settle(part, path)
    except BaseException:
        with suppress(OSError):
            os.unlink(part)
        raise


def add(names: Iterator[Path], write: Callable[[Path], object], mode: int = PRIVATE_MODE) -> Path:
    """Write a new file, give it the first of these names that is free, and return that.

    It has the name only once it is complete, and nothing is replaced.

    Args:
        names: of one folder.
        write: is given the path to write to.

    Raises:
        OSError: the place is read-only or full.
    """
    path = next(names)
    part, fd = _new_part(path, mode)
    os.close(fd)
    try:
        write(part)
        while True:
            try:
                os.link(part, path)
                break
            except FileExistsError:
                path = next(names)
            except OSError:  # no second names here: the first process that makes it has it
                with suppress(FileExistsError):
                    os.close(create(path, mode))
                    os.rename(part, path)
                    return path
                path = next(names)
    finally:
        with suppress(OSError):
            os.unlink(part)
    return path


def remove(path: Path) -> None:
    """Remove a regular file; ignore it if it is missing or something else.

    Raises:
        OSError: it cannot be removed.
    """
    if is_regular(path):
        os.unlink(path)


def _settle(part: Path, path: Path) -> None:
    """Give a complete file its final name.

    Raises:
        OSError: the name belongs to something that is not a regular file.
    """
    if os.path.lexists(path) and not is_regular(path):
        raise OSError(errno.EEXIST, "a link, a folder or a device has this name", str(path))
    os.rename(part, path)


def is_regular(path: Path) -> bool:
    """Return whether a path is a regular file; a link to one is not."""
    try:
        return stat.S_ISREG(os.lstat(path).st_mode)
    except OSError:
        return False


def part_name(path: Path) -> Path:
    """Return a name beside ``path`` for an incomplete file."""
    path = Path(os.path.abspath(path))  # the working directory and the one above it have names too
    return path.with_name(f"{PART}{os.getpid()}-{next(_numbers)}-{path.name[-_LONGEST_NAME:]}")


def _new_part(path: Path, mode: int) -> tuple[Path, int]:
    while True:
        part = part_name(path)
        with suppress(FileExistsError):  # of another host's process with our number
            return part, create(part, mode)
