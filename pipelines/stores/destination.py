"""The folder of a store that is being packed: its room, its other writers, and its replacement.

A complete store is replaced by one that is made beside it, once that is complete too.
"""

import fcntl
import os
import shutil
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

from feedline.pipelines.stores.packed import MANIFEST_FILE, sync_folder
from feedline.profiler.deferred import deferred
from feedline.profiler.errors import OutputError
from feedline.profiler.files import own_folders, owned, single

FOLDER_KIND = "store"
REMOVE_FIRST = "first remove the old store yourself (-f keeps it until the new one is complete)"
_MAX_ASIDE = 1000  # names that are tried for a store that is set aside


@contextmanager
def reserved(folder: Path, root: Path) -> Iterator[None]:
    """Create or take the folder, and keep other packs out of it meanwhile.

    Raises:
        OutputError: it holds something else, lies in ``root``, which is to be packed, or another
            pack writes to it.
    """
    if folder.resolve().is_relative_to(root.resolve()):
        raise OutputError(
            f"{folder} is inside {root}, where it would be mistaken for a class: choose a "
            f"folder elsewhere"
        )
    owned.claim(folder, FOLDER_KIND, mode=owned.SHARED)
    if others := _strangers(folder):
        raise OutputError(
            f"{folder} contains other files ({others[0]}): give a new or empty folder"
        )
    handle = os.open(folder, os.O_RDONLY)
    try:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise OutputError(
                f"another pack is writing to {folder}: wait for it, or name another folder"
            ) from error
        own_folders.sweep(folder)
        yield
    finally:
        os.close(handle)


def beside(folder: Path, which: str) -> Path:
    """Return the name of the ``new`` or the ``old`` store while one replaces the other."""
    folder = folder.resolve()  # a link to a store stays, and leads to the new one
    return folder.parent / f"{single.PART}{which}-{folder.name}"


def put_back(folder: Path) -> None:
    """Give a store its name again after a kill between the two renames of its replacement."""
    store, old = folder.resolve(), beside(folder, "old")
    with suppress(OSError):
        if not os.path.lexists(store) and (old / MANIFEST_FILE).exists():
            own_folders.rename(old, store)


@contextmanager
def replacement(folder: Path) -> Iterator[list[Path]]:
    """Make a folder beside a complete store, which takes its place at the end of the block.

    After an error, Ctrl-C or a kill in the block, the store is as it was, and it has its name all
    the time: a training may read it. What a kill has left is removed by the next replacement. It
    yields a list, which in the end has the folders with what is left of old stores that could not
    be removed.

    Raises:
        OutputError: a folder beside it cannot take its place.
        OSError: one cannot be made there.
    """
    store, new, old = folder.resolve(), beside(folder, "new"), beside(folder, "old")
    if os.path.ismount(store) or Path.cwd().is_relative_to(store):
        what = "a mount point" if os.path.ismount(store) else "the working directory, or above it"
        raise _irreplaceable(f"{folder} is {what}, and")
    if reason := owned.unmovable(store, FOLDER_KIND):
        raise _irreplaceable(str(folder), f" ({reason})")
    if os.path.lexists(new):
        own_folders.remove(new, FOLDER_KIND)
    older_is_gone = not os.path.lexists(old) or _removed(old)
    left: list[Path] = []
    with ExitStack() as stack:
        stack.callback(_removed, new)
        owned.claim(new, FOLDER_KIND, mode=owned.SHARED)
        yield left
        with deferred():
            stack.pop_all()  # it is complete: kept even where it cannot take its place
            if not older_is_gone:  # not earlier: if the pack fails, nobody is told its new name
                left.append(_rest(old, store))
            replaced = _swap(folder, store, new, old, left)
            if not _removed(replaced):
                left.append(_rest(replaced, store))


def _irreplaceable(what: str, reason: str = "") -> OutputError:
    return OutputError(
        f"{what} cannot be replaced by another folder{reason}",
        "pack into another folder",
        "first remove the files in it yourself",
    )


def _swap(folder: Path, store: Path, new: Path, old: Path, left: list[Path]) -> Path:
    """Put the new store in place of the old one; return where that is now, or keep both.

    Raises OutputError.
    """
    try:
        shutil.copymode(store, new)
        if own_folders.exchange(store, new):
            return new
        own_folders.rename(store, old)
        own_folders.rename(new, store)
    except OSError as error:
        put_back(folder)
        older = f", and the rest of an older one in {left[0]}" if left else ""
        raise OutputError(
            f"{folder} cannot be replaced ({error.strerror}), and is unchanged. "
            f"The new store is complete, in {_set_aside(new, store, 'new')}{older}"
        ) from error
    return old


def _removed(made: Path) -> bool:
    """Remove a store that nothing needs, if that is possible; tell whether all of it is gone."""
    try:
        with deferred():
            sync_folder(made.parent)  # or a loss of power gives what is left the name again
            own_folders.remove(made, FOLDER_KIND)
    except (OSError, OutputError):
        return False
    return True


def _rest(old: Path, store: Path) -> Path:
    """Return where the rest is of an old store that could not be removed, which the user sees."""
    # a removal that has begun has given it a hidden name of its own there
    return _set_aside(old, store, "old") if os.path.lexists(old) else store.parent


def _set_aside(made: Path, store: Path, ending: str) -> Path:
    """Give a hidden folder a free name that the user sees, if it can be renamed; return its name."""
    names = (f"{store.name}.{ending}{number}" for number in ("", *range(2, _MAX_ASIDE)))
    for aside in map(store.with_name, names):
        if not os.path.lexists(aside):
            with suppress(OSError):
                own_folders.rename(made, aside)
                return aside
            break
    return made


def _strangers(folder: Path) -> list[str]:
    """List files that no pack wrote. Raises OSError."""
    return sorted(present(folder) - own_folders.listed_names(folder))


def present(folder: Path) -> set[str]:
    """Return the names of everything in the folder. Raises OSError.

    Except the list and half-written files of a killed process.
    """
    return {
        path.name
        for path in folder.iterdir()
        if path.name != own_folders.LIST_NAME and not path.name.startswith(single.PART)
    }
