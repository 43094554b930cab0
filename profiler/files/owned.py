"""Folders that feedline made, and the list in each of them of what it put there.

    RUN/.feedline               {"feedline": "run", "launch": "..."}, then a name in each line
    RUN/rank0/.feedline         {"feedline": "part"}, then the names in this folder

A name is listed once its file has been created as a new one, so that a file of somebody else never gets into a list. A folder is removed
only if all that is in it is listed, and only while no process holds it (``Hold``).
"""

import errno
import fcntl
import json
import os
import stat
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import BinaryIO

from feedline.profiler.errors import OutputError, PlaceTaken
from feedline.profiler.files import single

LIST = ".feedline"
INNER = "part"  # the kind of a folder within another one of ours
PRIVATE, SHARED = 0o700, 0o777
MAX_LIST_BYTES = 1 << 24
NAMED = 5  # files of others that an error names
BUSY_S = 2.0  # how long another rank may take to replace the folder that this one is to replace too


@dataclass(frozen=True)
class Listing:
    """What a list says.

    Attributes:
        kind: run, store, results or part.
        launch: of a run, the launch whose ranks write into it.
        names: of the files and folders beside it.
    """

    kind: str
    launch: str = ""
    names: frozenset[str] = frozenset()


def read_list(folder: Path) -> Listing | None:
    """The list in a folder; None: it has none.

    Raises:
        OSError: it cannot be read.
    """
    try:
        fd = os.open(folder / LIST, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError as error:
        if error.errno in (errno.ENOENT, errno.ENOTDIR, errno.ELOOP, errno.ENXIO):
            return None
        raise
    with os.fdopen(fd, "rb") as file:
        about = os.fstat(fd)
        if not stat.S_ISREG(about.st_mode) or about.st_size > MAX_LIST_BYTES:
            return None
        head, *names = file.read().decode(errors="replace").split("\n")
    try:
        first = json.loads(head)
        return Listing(str(first["feedline"]), str(first.get("launch", "")), frozenset(name for name in names if name))
    except (ValueError, LookupError, TypeError, AttributeError):
        return None


def names(folder: Path) -> frozenset[str]:
    """What the list in a folder names."""
    listing = read_list(folder)
    return frozenset() if listing is None else listing.names


def claim(path: Path, kind: str, launch: str = "", mode: int = PRIVATE) -> None:
    """Make a folder, or take an empty one; one of the same kind and launch is joined.

    Raises:
        PlaceTaken: it holds something else.
        OSError: it cannot be made.
    """
    if not os.path.lexists(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        part = single.part_name(path)
        part.mkdir(mode)
        _begin_list(part, kind, launch)
        try:
            os.rename(part, path)
            return
        except OSError as error:
            _drop_new(part)
            if error.errno not in (errno.EEXIST, errno.ENOTEMPTY, errno.ENOTDIR):
                raise
    if not path.is_dir():
        raise PlaceTaken(f"{path} is {'a link to nowhere' if path.is_symlink() else 'a file'}: name another folder with -o")
    if not os.listdir(path):
        with suppress(FileExistsError):
            _begin_list(path, kind, launch)
            return
    listing = _settled_list(path)
    if listing is None:
        raise PlaceTaken(f"{path} holds files that feedline did not make ({_some(sorted(os.listdir(path)))}): name another folder with -o")
    if (listing.kind, listing.launch) != (kind, launch):
        raise _Older(f"{path} holds {_article(listing.kind)} already: name another folder with -o, or overwrite it with -f")


def replace(path: Path, kind: str, launch: str = "") -> None:
    """As ``claim``, in place of an older folder of that kind, which is removed. Of several ranks the first removes, the others join.

    Raises:
        PlaceTaken: it is of another kind, holds files of others, or a process uses it.
        OSError: it cannot be removed or made.
    """
    deadline = time.monotonic() + BUSY_S
    while True:
        try:
            try:
                return claim(path, kind, launch)
            except _Older:
                remove(path, kind)
        except (_Busy, FileNotFoundError):  # another rank is at it
            if time.monotonic() > deadline:
                raise
            time.sleep(0.02)


@contextmanager
def staging(path: Path, kind: str) -> Iterator[Path]:
    """A folder beside ``path`` to fill; what is left of it at the end is removed."""
    path.parent.mkdir(parents=True, exist_ok=True)
    part = single.part_name(path)
    part.mkdir(PRIVATE)
    _begin_list(part, kind, "")
    try:
        yield part
    finally:
        with suppress(OSError, OutputError):
            remove(part, kind)


def put(made: Path, path: Path, kind: str, force: bool) -> None:
    """Give a folder that is whole its name; an older one of that kind is removed first if ``force``.

    Raises:
        PlaceTaken: the name is taken, or the older one may not be removed.
        OSError: it cannot be made.
    """
    if os.path.lexists(path) and force and (path.is_symlink() or not path.is_dir() or os.listdir(path)):
        remove(path, kind)
    try:
        os.rename(made, path)
    except OSError as error:
        if error.errno in (errno.EEXIST, errno.ENOTEMPTY, errno.ENOTDIR):
            raise PlaceTaken(f"{path} exists already: name another folder with -o, or overwrite it with -f") from error
        raise


def subfolder(folder: Path, name: str, mode: int = PRIVATE) -> Path:
    """Make a folder within one of ours.

    Raises:
        FileExistsError: the name is taken.
        OSError: the place is read-only or full.
    """
    made = folder / name
    made.mkdir(mode)
    _begin_list(made, INNER, "")
    _enlist(folder, name)
    return made


def ensure(folder: Path) -> None:
    """Make a folder, and those above it, where they are missing; each is listed in the one above it. Raises OSError."""
    if not folder.is_dir():
        ensure(folder.parent)
        with suppress(FileExistsError):  # another process was faster
            subfolder(folder.parent, folder.name)


def move(made: Path, folder: Path, name: str) -> None:
    """Move a folder of ours into another one of ours. Raises OSError."""
    os.rename(made, folder / name)
    _enlist(folder, name)


def create(folder: Path, name: str, mode: int = single.PRIVATE) -> int:
    """A new file in one of our folders, open for reading and writing. Raises as ``single.create``."""
    fd = single.create(folder / name, mode)
    _enlist(folder, name)
    return fd


def reopen(folder: Path, name: str, mode: int = single.PRIVATE) -> int:
    """A file that the list names, open for reading and writing; a new one where there is none.

    Raises:
        PlaceTaken: the file is somebody else's.
        OSError: it is a link, or cannot be opened.
    """
    with suppress(FileExistsError):
        return create(folder, name, mode)
    _see_that_ours(folder, name)
    return single.reopen(folder / name)


@contextmanager
def replacing(folder: Path, name: str, mode: int = single.PRIVATE) -> Iterator[BinaryIO]:
    """A file that takes a name in one of our folders at the end of the block.

    Raises:
        PlaceTaken: the name belongs to a file that feedline did not write.
        OSError: the place is read-only or full.
    """
    path, new = folder / name, not os.path.lexists(folder / name)
    if not new:
        _see_that_ours(folder, name)
    with single.replacing(path, mode) as file:
        yield file
    if new:
        _enlist(folder, name)


@contextmanager
def replacing_path(folder: Path, name: str, mode: int = single.PRIVATE) -> Iterator[Path]:
    """As ``replacing``, for libraries that open a file by its name."""
    path, new = folder / name, not os.path.lexists(folder / name)
    if not new:
        _see_that_ours(folder, name)
    with single.replacing_path(path, mode) as part:
        yield part
    if new:
        _enlist(folder, name)


def write(folder: Path, name: str, data: bytes | str, mode: int = single.PRIVATE) -> None:
    """Write a whole file into one of our folders. Raises as ``replacing``."""
    with replacing(folder, name, mode) as file:
        file.write(data.encode() if isinstance(data, str) else data)


def append(folder: Path, name: str, keep_bytes: int, mode: int = single.PRIVATE, buffering: int = 0) -> BinaryIO:
    """A file of ours, cut off after ``keep_bytes`` and open for writing there. Raises as ``reopen``."""
    file = os.fdopen(reopen(folder, name, mode), "r+b", buffering)
    file.truncate(keep_bytes)
    file.seek(keep_bytes)
    return file


def restart(folder: Path, name: str, mode: int = single.PRIVATE) -> int:
    """An empty file in place of one that the list names, open for writing while others read it.

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
    """Remove a file that the list names; others stay. Raises OSError."""
    listing = read_list(folder)
    if listing is not None and name in listing.names:
        single.remove(folder / name)


def sweep(folder: Path) -> None:
    """Remove what a kill left half written in a folder of ours that this process alone writes to. Raises OSError."""
    for path in folder.iterdir():
        if path.name.startswith(single.PART):
            single.remove(path)


def remove(path: Path, kind: str = INNER) -> None:
    """Remove a folder of ours. It is gone from its name at once; files that appear in it meanwhile stay, under another name.

    Raises:
        PlaceTaken: it is not ours or of another kind, holds anything that its list does not name, or a process uses it.
        OSError: it cannot be removed.
    """
    with ExitStack() as stack:
        strangers: list[str] = []
        tree = _survey(path, path.name, None, kind, strangers, stack)
        if strangers:
            raise PlaceTaken(
                f"{path} also holds {_some(strangers)}, which feedline did not make: move {'them' if len(strangers) > 1 else 'it'} away, "
                "or name another folder with -o"
            )
        aside = single.part_name(path)
        os.rename(path, aside)
        _clear(tree)
        os.rmdir(aside)


class Hold:
    """Keeps a folder from being removed, for as long as this process and its forks live. Forgotten by ``release``."""

    def __init__(self, folder: Path) -> None:
        """Raises OSError: it has no list, or is being removed."""
        self._fd = os.open(folder / LIST, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
        try:
            _lock(self._fd, fcntl.LOCK_SH)
        except OSError:
            os.close(self._fd)
            raise
        about = os.fstat(self._fd)
        self._is = about.st_dev, about.st_ino

    def release(self) -> None:
        """Let it go. The program may have closed our descriptor, and opened a file of its own under the number."""
        with suppress(OSError):
            about = os.fstat(self._fd)
            if (about.st_dev, about.st_ino) == self._is:
                os.close(self._fd)


@contextmanager
def held(folder: Path) -> Iterator[None]:
    """Keep a folder from being removed in the block, where it has a list and may be read at all.

    Raises:
        PlaceTaken: it is being removed.
    """
    try:
        hold = Hold(folder)
    except BlockingIOError as error:
        raise _Busy(f"{folder} is being replaced by another run") from error
    except OSError:
        hold = None
    try:
        yield
    finally:
        if hold is not None:
            hold.release()


class _Older(PlaceTaken):
    """A folder of ours of an earlier time."""


class _Busy(PlaceTaken):
    """A process holds it."""


@dataclass
class _Folder:
    fd: int
    files: list[str] = field(default_factory=list)
    folders: dict[str, "_Folder"] = field(default_factory=dict)


def _survey(path: Path, name: str, within: int | None, kind: str, strangers: list[str], stack: ExitStack) -> _Folder:
    """Open a folder and all folders in it, lock their lists, and note what does not belong there."""
    listing = read_list(path)
    if listing is None:
        raise PlaceTaken(f"{path} was not made by feedline (it has no list {LIST}), and is left as it is: name another folder with -o")
    if listing.kind != kind:
        raise PlaceTaken(f"{path} holds {_article(listing.kind)}, not {_article(kind)}, and is left as it is: name another folder with -o")
    flags = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
    fd = os.open(path if within is None else name, flags, dir_fd=within)
    stack.callback(os.close, fd)
    lock = os.open(LIST, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=fd)
    stack.callback(os.close, lock)
    try:
        _lock(lock, fcntl.LOCK_EX)
    except BlockingIOError as error:
        raise _Busy(f"{path} is being used by another process: wait until it has ended, or name another folder with -o") from error
    found = _Folder(fd)
    for entry in sorted(os.listdir(fd)):
        mode = os.lstat(entry, dir_fd=fd).st_mode
        ours = entry in listing.names or entry == LIST or entry.startswith(single.PART)
        if ours and stat.S_ISREG(mode):
            found.files.append(entry)
        elif ours and stat.S_ISDIR(mode) and read_list(path / entry) is not None:
            found.folders[entry] = _survey(path / entry, entry, fd, INNER, strangers, stack)
        else:
            strangers.append(str(path / entry))
    return found


def _clear(folder: _Folder) -> None:
    for name, inner in folder.folders.items():
        _clear(inner)
        os.rmdir(name, dir_fd=folder.fd)
    for name in folder.files:
        os.unlink(name, dir_fd=folder.fd)


def _lock(fd: int, how: int) -> None:
    """Raises BlockingIOError. A file system that knows no locks has none to wait for."""
    try:
        fcntl.flock(fd, how | fcntl.LOCK_NB)
    except BlockingIOError:
        raise
    except OSError as error:
        if error.errno not in (errno.ENOLCK, errno.ENOSYS, errno.EOPNOTSUPP, errno.EINVAL):
            raise


def _begin_list(folder: Path, kind: str, launch: str) -> None:
    fd = single.create(folder / LIST)
    try:
        os.write(fd, json.dumps({"feedline": kind, "launch": launch}).encode() + b"\n")
    finally:
        os.close(fd)


def _settled_list(folder: Path) -> Listing | None:
    """As ``read_list``; of a folder that another process is just beginning, once it has."""
    deadline = time.monotonic() + BUSY_S
    while (listing := read_list(folder)) is None and os.listdir(folder) == [LIST] and time.monotonic() < deadline:
        time.sleep(0.01)
    return listing


def _enlist(folder: Path, name: str) -> None:
    """Add a name to the list, or take back the new file: one that is not listed would be in the way for good."""
    try:
        _add_name(folder, name)
    except OSError:
        with suppress(OSError):
            single.remove(folder / name)
        raise


def _add_name(folder: Path, name: str) -> None:
    """In one write, so that several processes may do so at once. A folder of the user's own gets a list."""
    flags = os.O_WRONLY | os.O_APPEND | os.O_NOFOLLOW | os.O_CLOEXEC
    try:
        fd = os.open(folder / LIST, flags)
    except FileNotFoundError:
        with suppress(FileExistsError):
            _begin_list(folder, "results", "")
        fd = os.open(folder / LIST, flags)
    try:
        os.write(fd, name.encode() + b"\n")
    finally:
        os.close(fd)


def _see_that_ours(folder: Path, name: str) -> None:
    listing = read_list(folder)
    if listing is None or name not in listing.names:
        raise PlaceTaken(f"{folder / name} exists already and feedline did not write it: move it away, or name another place with -o")


def _drop_new(folder: Path) -> None:
    os.unlink(folder / LIST)
    os.rmdir(folder)


def _some(names: list[str]) -> str:
    return ", ".join(names[:NAMED]) + (f" and {len(names) - NAMED:,} more" if len(names) > NAMED else "")


def _article(kind: str) -> str:
    return {"run": "a run", "store": "a packed store", "results": "other results"}.get(kind, "something else")
