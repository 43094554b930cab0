"""Checks before packing that the store fits on the disk."""

import os
import shutil
from pathlib import Path

from feedline.pipelines.stores.index import RECORD
from feedline.pipelines.stores.kinds import StoreKind
from feedline.pipelines.stores.listing import Listing
from feedline.profiler.errors import OutputError

_MARGIN_SHARE = 0.02  # what a file system takes for itself on top, and other writers meanwhile
MARGIN_BYTES = 8 << 20


def needed(listing: Listing, kind: StoreKind) -> int:
    """Bytes that the store will take, at most."""
    total = 0
    for source in listing.sources:
        path_bytes = len(os.fsencode(source.path))
        total += kind.stored_bytes(source.bytes, path_bytes) + RECORD.itemsize + path_bytes
    return total


def check(destination: Path, total: int) -> None:
    """Check that a store of ``total`` bytes fits. Existing files of it count: they are continued or replaced.

    Raises:
        OutputError: it does not.
    """
    there = destination.absolute()
    while not there.exists():
        there = there.parent
    already = sum(file.stat().st_blocks * 512 for file in destination.iterdir()) if destination.is_dir() else 0
    wants = max(0, total - already)
    wants_free = wants + int(wants * _MARGIN_SHARE) + MARGIN_BYTES
    free = shutil.disk_usage(there).free
    if free < wants_free:
        raise OutputError(
            f"{destination} needs {_megabytes(wants)} more ({_megabytes(wants_free)} with a margin), "
            f"but {there} has only {_megabytes(free)} free: free some space, or choose a folder on another disk"
        )


def _megabytes(count: int) -> str:
    return f"{count / 1e6:,.1f} MB"
