"""Folders that feedline created: the list of the files that it made in each, and their removal.

    RUN/.feedline               {"feedline": "run", "launch": "..."}, then a name in each line
    RUN/rank0/.feedline         {"feedline": "part"}, then the names in this folder

A name is listed only after its file was created as a new one, so a file of the user's is never listed. A folder is removed if everything
in it is listed and no process uses it.
"""

import errno
import fcntl
import json
import os
import stat
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from io import FileIO
from pathlib import Path

from feedline.profiler.errors import ELSEWHERE, PlaceTaken
from feedline.profiler.files import single
from feedline.profiler.files.descriptor import Descriptor
from feedline.profiler.message import few

LIST_NAME = ".feedline"
RESULTS_KIND = "results"  # the kind of a folder of the user's own in which feedline has files
INNER_KIND = "part"  # the kind of a folder within another one of ours
_MAX_LIST_BYTES = 1 << 24
MAX_NAMED = 5  # files of others that an error names
_WORKING_DIRECTORY, _EXCHANGE = -100, 2  # AT_FDCWD, RENAME_EXCHANGE of renameat2(2)


@dataclass(frozen=True)
class FolderList:
    """Content of a list.

    Attributes:
        kind: run, store, results or part.
        launch: of a run, the launch whose ranks write into it.
        names: of the files and folders beside it.
    """

    kind: str
    launch: str = ""
    names: frozenset[str] = frozenset()


def read_list(folder: Path) -> FolderList | None:
    """Return the list of a folder; None if it has none.

    Raises:
        OSError: it cannot be read.
    """
    try:
        fd = os.open(folder / LIST_NAME, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError as error:
        if error.errno in (errno.ENOENT, errno.ENOTDIR, errno.ELOOP, errno.ENXIO):
            return None
        raise
    with os.fdopen(fd, "rb") as file:
        about = os.fstat(fd)
        if not stat.S_ISREG(about.st_mode) or about.st_size > _MAX_LIST_BYTES:
            return None
        head, *names = file.read().decode(errors="replace").split("\n")
    try:
        first = json.loads(head)
        return FolderList(
            str(first["feedline"]),
            str(first.get("launch", "")),
            frozenset(name for name in names if name),
        )
    except (ValueError, LookupError, TypeError, AttributeError, RecursionError):
        return None


def listed_names(folder: Path) -> frozenset[str]:
    """Return the names on the list of a folder."""
    listing = read_list(folder)
    return frozenset() if listing is None else listing.names


def begin_list(folder: Path, kind: str, launch: str = "") -> None:
    """Create the list of a folder. Raises FileExistsError; OSError."""
    fd = single.create(folder / LIST_NAME)
    try:
        os.write(fd, json.dumps({"feedline": kind, "launch": launch}).encode() + b"\n")
    finally:
        os.close(fd)


def add_to_list(folder: Path, name: str) -> None:
    """Add a name, in one write, so that several processes can do so at once.

    A folder of the user's also gets a list. Raises OSError.
    """
    flags = os.O_WRONLY | os.O_APPEND | os.O_NOFOLLOW | os.O_CLOEXEC
    try:
        fd = os.open(folder / LIST_NAME, flags)
    except FileNotFoundError:
        with suppress(FileExistsError):
            begin_list(folder, RESULTS_KIND, "")
        fd = os.open(folder / LIST_NAME, flags)
    try:
        os.write(fd, name.encode() + b"\n")
    finally:
        os.close(fd)


def kind_with_article(kind: str) -> str:
    """Return the kind of a folder with its article, for a sentence."""
    return {"run": "a run", "store": "a packed store", RESULTS_KIND: "other results"}.get(
        kind, "something else"
    )


def no_process(folder: Path) -> bool:
    """Return False: whether a process uses the folder is not known, or of no account."""
    return False


def remove(path: Path, kind: str = INNER_KIND, in_use: Callable[[Path], bool] = no_process) -> None:
    """Remove a folder of feedline's.

    Its name is free at once; files that appear in it meanwhile are kept under another name.

    Args:
        path: the folder.
        kind: that it must have.
        in_use: tells of it, and of each folder in it, whether a process uses that. It is asked
            where the file system knows no locks.

    Raises:
        PlaceTaken: it is not ours or of another kind, holds anything that its list does not name,
            or a process uses it.
        OSError: it cannot be removed.
    """
    with ExitStack() as stack:
        stack.enter_context(_all_descriptors())
        survey = _Survey(in_use, stack)
        tree = survey.of(path, path.name, None, kind)
        if strangers := survey.strangers:
            raise PlaceTaken(
                f"{path} also holds {few(strangers, MAX_NAMED)}, which feedline did not make",
                f"move {'them' if len(strangers) > 1 else 'it'} away",
                ELSEWHERE,
            )
        aside = single.part_name(path)
        os.rename(path, aside)
        with _opened(aside) as top:
            _clear(tree, top)
        os.rmdir(aside)


def rename(path: Path, to: Path) -> None:
    """Give a folder another name, which is free or that of an empty folder. Raises OSError."""
    os.rename(path, to)


def exchange(path: Path, other: Path) -> bool:
    """Exchange the names of two folders at once, so that neither name is ever missing.

    It returns whether the file system did so: NFS and older ones cannot, nor does every C library.
    """
    import ctypes

    function = getattr(ctypes.CDLL(None), "renameat2", None)
    if function is None:
        return False
    first, second = os.fsencode(path), os.fsencode(other)
    return bool(function(_WORKING_DIRECTORY, first, _WORKING_DIRECTORY, second, _EXCHANGE) == 0)


def sweep(folder: Path) -> None:
    """Remove half-written files of a killed process from a folder that only this process writes to.

    Raises OSError.
    """
    for path in folder.iterdir():
        if path.name.startswith(single.PART):
            single.remove(path)


class Hold:
    """Protects a folder from removal while this process and its forks live, or until ``release``."""

    def __init__(self, folder: Path) -> None:
        """Open the list of a folder.

        Raises OSError: it has no list, or is being removed.
        """
        fd = os.open(folder / LIST_NAME, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
        try:
            lock(fd, fcntl.LOCK_SH)
        except OSError:
            os.close(fd)
            raise
        self._file = Descriptor(fd)
        self._list = os.fstat(fd)

    def is_of(self, folder: Path) -> bool:
        """Return whether a path leads to the folder that is held, not to one in its place."""
        with suppress(OSError):
            return os.path.samestat(os.lstat(folder / LIST_NAME), self._list)
        return False

    def release(self) -> None:
        """Release it.

        The program may have closed the descriptor and opened a file of its own under its number.
        """
        with suppress(OSError):
            self._file.close()


@contextmanager
def held(folder: Path) -> Iterator[None]:
    """Protect a folder from removal inside the block, if it has a list and can be read.

    Raises:
        PlaceTaken: it is being removed.
    """
    try:
        hold = Hold(folder)
    except BlockingIOError as error:
        raise Busy(f"{folder} is being replaced by another run") from error
    except OSError:
        hold = None
    try:
        yield
    finally:
        if hold is not None:
            hold.release()


class Busy(PlaceTaken):
    """Another process uses the folder."""


@dataclass
class _Folder:
    """A folder to remove.

    Attributes:
        listed: its list, which is locked while it is open.
        files: their names.
        folders: in it, by their names.
    """

    listed: FileIO
    files: list[str] = field(default_factory=list)
    folders: dict[str, "_Folder"] = field(default_factory=dict)


class _Survey:
    """Looks through folders, locks their lists, and notes what does not belong there.

    Each folder keeps one descriptor, of its list: a run has two folders for each rank.
    """

    def __init__(self, in_use: Callable[[Path], bool], stack: ExitStack) -> None:
        self.strangers: list[str] = []
        self._in_use, self._stack = in_use, stack

    def of(self, path: Path, name: str, within: int | None, kind: str) -> _Folder:
        """Look through a folder and all folders in it. Raises PlaceTaken, OSError."""
        listing = read_list(path)
        if listing is None:
            raise PlaceTaken(
                f"{path} was not made by feedline (it contains no {LIST_NAME}), and is left "
                f"untouched",
                ELSEWHERE,
            )
        if listing.kind != kind:
            raise PlaceTaken(
                f"{path} holds {kind_with_article(listing.kind)}, not {kind_with_article(kind)}, "
                f"and is left untouched",
                ELSEWHERE,
            )
        with _opened(path if within is None else name, within) as fd:
            surveyed = _Folder(self._locked(fd, path))
            for entry in sorted(os.listdir(fd)):
                mode = os.lstat(entry, dir_fd=fd).st_mode
                ours = entry in listing.names or entry == LIST_NAME or entry.startswith(single.PART)
                if ours and stat.S_ISREG(mode):
                    surveyed.files.append(entry)
                elif ours and stat.S_ISDIR(mode) and read_list(path / entry) is not None:
                    surveyed.folders[entry] = self.of(path / entry, entry, fd, INNER_KIND)
                else:
                    self.strangers.append(str(path / entry))
        return surveyed

    def _locked(self, folder: int, path: Path) -> FileIO:
        """Open and lock the list of a folder. Raises Busy, OSError."""
        listed = self._stack.enter_context(FileIO(_open_list(folder), "rb"))
        try:
            known = lock(listed.fileno(), fcntl.LOCK_EX)
        except BlockingIOError:
            busy = True
        else:
            busy = not known and self._in_use(path)
        if busy:
            raise Busy(
                f"{path} is being used by another process", "wait until it has ended", ELSEWHERE
            )
        return listed


@contextmanager
def _opened(folder: Path | str, within: int | None = None) -> Iterator[int]:
    """Open a folder, which no link leads to, for the functions that take ``dir_fd``."""
    flags = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
    fd = os.open(folder, flags, dir_fd=within)
    try:
        yield fd
    finally:
        os.close(fd)


@contextmanager
def _all_descriptors() -> Iterator[None]:
    """Let this process open as many files as the system would allow it."""
    import resource

    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    with suppress(OSError, ValueError):
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    try:
        yield
    finally:
        with suppress(OSError, ValueError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def _open_list(folder: int) -> int:
    """Open the list of a folder, for writing where that is allowed: NFS locks nothing else."""
    flags = os.O_NOFOLLOW | os.O_CLOEXEC
    try:
        return os.open(LIST_NAME, os.O_RDWR | flags, dir_fd=folder)
    except OSError as error:
        if error.errno not in (errno.EACCES, errno.EROFS, errno.EPERM):
            raise
        return os.open(LIST_NAME, os.O_RDONLY | flags, dir_fd=folder)


def _clear(folder: _Folder, fd: int) -> None:
    """Remove what is in a folder that has another name by now, so that nobody else comes to it.

    Its list goes last: it tells that the rest is feedline's. It is closed before, as NFS and sshfs
    keep a file that is open under another name, and then the folder could not be removed.

    Raises OSError: another folder is in its place, or it cannot be removed.
    """
    if not os.path.samestat(os.fstat(folder.listed.fileno()), os.lstat(LIST_NAME, dir_fd=fd)):
        raise OSError(errno.ESTALE, os.strerror(errno.ESTALE))
    for name, inner in folder.folders.items():
        with _opened(name, fd) as within:
            _clear(inner, within)
        os.rmdir(name, dir_fd=fd)
    for name in folder.files:
        if name != LIST_NAME:
            os.unlink(name, dir_fd=fd)
    folder.listed.close()
    os.unlink(LIST_NAME, dir_fd=fd)


#: What a file system answers that knows no locks: Lustre without -o flock, NFS without its daemon.
_NO_LOCKS = (errno.ENOLCK, errno.ENOSYS, errno.EOPNOTSUPP, errno.EINVAL)


def lock(fd: int, how: int, wait: bool = False) -> bool:
    """Lock a file; return whether its file system knows locks.

    NFS emulates them, and gives an exclusive one only for a file that is open for writing.

    Raises:
        BlockingIOError: another process has it, and it is not waited for.
        OSError: it cannot be locked.
    """
    try:
        fcntl.flock(fd, how if wait else how | fcntl.LOCK_NB)
    except BlockingIOError:
        raise
    except OSError as error:
        if error.errno not in _NO_LOCKS:
            raise
        return False
    return True


@contextmanager
def turn(path: Path) -> Iterator[bool]:
    """Tell whether no other process is in such a block for the same file, where there are no locks.

    A process that is killed in its block leaves the turn taken for good.

    Raises:
        OSError: the folder is read-only, or the disk is full.
    """
    ticket = path.with_name(f"{single.PART}turn-{path.name}")
    try:
        os.close(single.create(ticket))
    except FileExistsError:
        yield False
        return
    try:
        yield True
    finally:
        with suppress(OSError):
            single.remove(ticket)
