"""The list of files that feedline created in a folder of its own.

    RUN/.feedline               {"feedline": "run", "launch": "..."}, then a name in each line
    RUN/rank0/.feedline         {"feedline": "part"}, then the names in this folder

A name is listed only after its file was created as a new one, so a file of the user's is never listed.
"""

import errno
import json
import os
import stat
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from feedline.profiler.files import single

LIST = ".feedline"
RESULTS = "results"  # the kind of a folder of the user's own in which feedline has files
INNER = "part"  # the kind of a folder within another one of ours
_MAX_LIST_BYTES = 1 << 24
NAMED = 5  # files of others that an error names


@dataclass(frozen=True)
class Listing:
    """Content of a list.

    Attributes:
        kind: run, store, results or part.
        launch: of a run, the launch whose ranks write into it.
        names: of the files and folders beside it.
    """

    kind: str
    launch: str = ""
    names: frozenset[str] = frozenset()


def read_list(folder: Path) -> Listing | None:
    """The list of a folder; None if it has none.

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
        if not stat.S_ISREG(about.st_mode) or about.st_size > _MAX_LIST_BYTES:
            return None
        head, *names = file.read().decode(errors="replace").split("\n")
    try:
        first = json.loads(head)
        return Listing(str(first["feedline"]), str(first.get("launch", "")), frozenset(name for name in names if name))
    except (ValueError, LookupError, TypeError, AttributeError, RecursionError):
        return None


def names(folder: Path) -> frozenset[str]:
    """Names on the list of a folder."""
    listing = read_list(folder)
    return frozenset() if listing is None else listing.names


def begin(folder: Path, kind: str, launch: str = "") -> None:
    """Create the list of a folder. Raises FileExistsError; OSError."""
    fd = single.create(folder / LIST)
    try:
        os.write(fd, json.dumps({"feedline": kind, "launch": launch}).encode() + b"\n")
    finally:
        os.close(fd)


def add(folder: Path, name: str) -> None:
    """Add a name, in one write, so that several processes can do so at once. A folder of the user's also gets a list. Raises OSError."""
    flags = os.O_WRONLY | os.O_APPEND | os.O_NOFOLLOW | os.O_CLOEXEC
    try:
        fd = os.open(folder / LIST, flags)
    except FileNotFoundError:
        with suppress(FileExistsError):
            begin(folder, RESULTS, "")
        fd = os.open(folder / LIST, flags)
    try:
        os.write(fd, name.encode() + b"\n")
    finally:
        os.close(fd)


def article(kind: str) -> str:
    """The kind of a folder with its article, for a sentence."""
    return {"run": "a run", "store": "a packed store", RESULTS: "other results"}.get(kind, "something else")
