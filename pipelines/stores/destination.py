"""The folder of a new store: checks its content, locks it against other packs, and words its errors."""

import errno
import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from feedline.pipelines.stores.kinds import open_packed
from feedline.pipelines.stores.listing import Listing
from feedline.pipelines.stores.manifest import MANIFEST, PLAN, Manifest, Plan
from feedline.profiler.errors import OutputError, StoreDamaged
from feedline.profiler.files import own_folders, owned, single

_KIND = "store"


def whole_already(folder: Path, plan: Plan, force: bool) -> Manifest | None:
    """The manifest of the store to be made, if it is already complete.

    Raises:
        OutputError: it is a store of something else, and ``force`` does not say to replace it.
        StoreDamaged: it is damaged, and ``force`` does not say to replace it.
    """
    if not (folder / MANIFEST).exists():
        return None
    try:
        manifest = open_packed(folder).manifest
    except StoreDamaged:
        if force:
            return None
        raise
    if force:
        return None
    if manifest.plan.same_data(plan):
        owned.discard(folder, PLAN)  # a kill between the two last steps leaves it
        return manifest
    raise OutputError(
        f"{folder} already holds a complete store of other data ({manifest.plan.kind}, {manifest.samples:,} samples; or the files changed "
        f"after they were packed): name another folder, or replace it with -f"
    )


@contextmanager
def prepared(folder: Path, listing: Listing, plan: Plan, force: bool) -> Iterator[None]:
    """Prepare the folder, and keep other packs out of it meanwhile.

    Raises:
        OutputError: it holds something else, or another pack writes to it.
    """
    if folder.resolve().is_relative_to(listing.root.resolve()):
        raise OutputError(f"{folder} is inside {listing.root}, where it would be mistaken for a class: choose a folder elsewhere")
    owned.claim(folder, _KIND, mode=owned.SHARED)
    if others := _strangers(folder):
        raise OutputError(f"{folder} contains other files ({others[0]}): give a new or empty folder")
    handle = os.open(folder, os.O_RDONLY)
    try:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise OutputError(f"another pack is writing to {folder}: wait for it, or name another folder") from error
        own_folders.sweep(folder)
        before = Plan.read(folder)
        if not force and (own_folders.listed_names(folder) & _present(folder)) and (before is None or not before.same_data(plan)):
            was = f"of {before.source} as {before.kind}" if before else "of unknown origin"
            raise OutputError(f"{folder} holds an unfinished pack {was}, not of this data: start over with -f, or name another folder")
        if force:
            empty(folder)
        plan.write(folder)
        yield
    finally:
        os.close(handle)


def _strangers(folder: Path) -> list[str]:
    """Files that no pack wrote. Raises OSError."""
    return sorted(_present(folder) - own_folders.listed_names(folder))


def _present(folder: Path) -> set[str]:
    """Names of everything in the folder except the list and half-written files of a killed process. Raises OSError."""
    return {path.name for path in folder.iterdir() if path.name != own_folders.LIST_NAME and not path.name.startswith(single.PART)}


def empty(folder: Path) -> None:
    """Remove only the files of a store, the manifest first. Raises OSError."""
    for name in sorted(own_folders.listed_names(folder), key=lambda name: (name != MANIFEST, name)):
        owned.discard(folder, name)


@contextmanager
def as_output_errors(folder: Path, plan: Plan) -> Iterator[None]:
    """Turn errors of writing into errors for the user."""
    try:
        yield
    except OSError as error:
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            again = f"free some space; the same command then continues where it stopped: {plan.command(folder)}"
            raise OutputError(f"{folder}: the disk is full: {again}") from error
        raise OutputError.unwritable(folder, error, "name another folder", "start over with -f if it holds part of a store") from error
