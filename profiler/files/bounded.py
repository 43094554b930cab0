"""Opens files of a run folder that others may have made or changed.

They must be regular files of bounded size; it never goes through a link.
"""

import json
import os
import stat
from pathlib import Path
from typing import Any, BinaryIO

from feedline.profiler.errors import RunDamaged

_MB = 1 << 20
#: Bytes of a file that no recording reaches: a manifest has a few KB, a segment 8 MB
#: (store/segment.py), gauges 2 MB (samplers/gauge_file.py).
MOST_JSON, MOST_SEGMENT, MOST_GAUGES = 16 * _MB, 32 * _MB, 16 * _MB
MOST_WINDOW = 256 * _MB  # packed: five steps have some 1 MB
# a trace of another tool; what is in it is bounded by its pages (files/parquet.py)
MOST_COLUMNS = 1 << 40
# names of a path below the run folder: rank0/manifest.json; not in one, but named
_OF_RANK, OF_SEGMENT, OF_RUN, OF_USER = (2, 3, 1, 0)
_FOLDER_FLAGS = os.O_PATH | os.O_CLOEXEC | os.O_DIRECTORY
_READ_FLAGS = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC
_FILE_KINDS = {
    stat.S_IFLNK: "a symbolic link",
    stat.S_IFIFO: "a FIFO",
    stat.S_IFDIR: "a folder",
    stat.S_IFSOCK: "a socket",
}


def opened(path: Path, most: int, below: int = _OF_RANK) -> BinaryIO:
    """Open a file for reading.

    Args:
        path: of the file.
        most: bytes that it may have.
        below: how many names at the end of the path lie in the run folder: none of them may be a
            link. The run folder itself may.

    Raises:
        OSError: it is missing or may not be read.
        RunDamaged: it is not a regular file, is reached through a link, or is larger than that.
    """
    if below == OF_USER:
        # of links in a circle, resolve() raises RuntimeError before Python 3.13
        path, below = (Path(os.path.realpath(path)), OF_RUN)
    place = os.open(Path(*path.parts[:-below]), _FOLDER_FLAGS)
    try:
        for count in range(below - 1, 0, -1):
            inner = os.open(path.parts[-1 - count], _FOLDER_FLAGS | os.O_NOFOLLOW, dir_fd=place)
            os.close(place)
            place = inner
        # before it is opened: a device may act on that
        _refuse(path, os.stat(path.name, dir_fd=place, follow_symlinks=False), most)
        file = os.open(path.name, _READ_FLAGS, dir_fd=place)
    except NotADirectoryError as error:
        refuse_link(path, below)
        raise RunDamaged(
            f"{path} cannot be read ({error.strerror}): expected a folder, found a file"
        ) from error
    finally:
        os.close(place)
    try:
        _refuse(path, os.fstat(file), most)
        return os.fdopen(file, "rb")
    except BaseException:
        os.close(file)
        raise


def whole(path: Path, most: int, below: int = _OF_RANK) -> bytes:
    """Return the whole content of a file. Raises as ``opened``."""
    with opened(path, most, below) as file:
        return file.read(most)


def refuse_link(path: Path, below: int = 1) -> None:
    """Check that none of the last ``below`` names of a path is a symbolic link.

    Raises:
        RunDamaged: one is.
    """
    for name in [path, *path.parents][:below]:
        if name.is_symlink():
            raise RunDamaged(_says(name, "a symbolic link"))


def _refuse(path: Path, about: os.stat_result, most: int) -> None:
    if not stat.S_ISREG(about.st_mode):
        raise RunDamaged(_says(path, _FILE_KINDS.get(stat.S_IFMT(about.st_mode), "a device")))
    if about.st_size > most:
        raise RunDamaged(
            f"{path} has {about.st_size:,} bytes, more than any recording writes ({most:,}): it "
            f"was changed or damaged"
        )


def _says(path: Path, kind: str) -> str:
    return (
        f"{path} is {kind}: run folders are read from regular files and folders only; replace "
        f"it with the file itself"
    )


def json_of(data: bytes | str) -> Any:
    """Decode JSON from an untrusted source.

    Numbers fit into 64 bits, keys are unique, nesting is bounded.

    Raises:
        ValueError: it is not such JSON.
    """
    try:
        return json.loads(data, parse_int=_integer, object_pairs_hook=_once)
    except RecursionError as error:
        raise ValueError("it is nested too deeply") from error


def _integer(text: str) -> int:
    if len(text) > 20 or not -(1 << 63) <= int(text) < 1 << 64:
        raise ValueError(f"the number {text[:20]}... does not fit into 64 bits")
    return int(text)


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    members = dict(pairs)
    if len(members) < len(pairs):
        raise ValueError("an object has the same key twice")
    return members


def one_line(error: object) -> str:
    """Return the message of an error for use in a sentence.

    It has no line breaks, and is of limited length.
    """
    text = " ".join(str(error).split())
    return text if len(text) <= 300 else text[:300] + "..."
