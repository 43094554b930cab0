"""The formats of stores: how to open one, and how to verify it."""

from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

from feedline.pipelines.stores import lmdb, recordio, tar, tfrecord
from feedline.pipelines.stores.image_folder import FileStore
from feedline.pipelines.stores.index import Progress, ReportProgress, Store, ignore_progress
from feedline.pipelines.stores.packed import (
    MANIFEST_FILE,
    PLAN_FILE,
    IndexedStore,
    StoreManifest,
    file_crc32,
    how_to_repack,
)
from feedline.profiler.errors import DataError, StoreDamaged

STORE_KINDS = {
    kind.name: kind for kind in (lmdb.LMDB, tar.TAR, recordio.RECORDIO, tfrecord.TFRECORD)
}
_MAX_NAMED = 5  # damaged samples that a message names


def open_store(path: Path | str) -> Store:
    """Open a packed store, or an image folder.

    Raises:
        StoreDamaged: a packed store that is not whole, or whose files are gone, cut off or changed.
        SchemaTooNew: a newer feedline packed it.
        DataError: there is nothing of the kind.
    """
    folder = Path(path)
    if not (folder / MANIFEST_FILE).exists() and not (folder / PLAN_FILE).exists():
        if not folder.is_dir():
            raise DataError(
                f"{folder} is neither a store nor an image folder: give a packed store, or a "
                f"folder with one subfolder per class"
            )
        return FileStore(folder)
    return open_packed(folder)


def open_packed(folder: Path) -> IndexedStore:
    """Open a packed store. Raises StoreDamaged, SchemaTooNew."""
    kind = StoreManifest.read(folder).plan.kind
    if kind not in STORE_KINDS:
        raise StoreDamaged(
            f"{folder} has kind {kind!r}, which this version of feedline does not support: "
            f"{how_to_repack(folder)}"
        )
    return STORE_KINDS[kind].store(folder)


@dataclass(frozen=True)
class Verified:
    """The size of a store that matches its checksums.

    Attributes:
        bytes: of the samples' values.
    """

    samples: int
    bytes: int


def verify(path: Path | str, progress: ReportProgress = ignore_progress) -> Verified:
    """Read every sample and every file of a packed store.

    Raises:
        StoreDamaged: it is not whole, or not what was packed: names files and samples, and counts
            them.
    """
    with closing(open_packed(Path(path))) as store:
        if differs := damage(store, progress):
            raise StoreDamaged(
                f"{path} is not what was packed: {differs}: {how_to_repack(Path(path))}"
            )
        return Verified(len(store), store.manifest.bytes)


def damage(store: IndexedStore, progress: ReportProgress) -> str:
    """Say what in a store is not what was packed; empty: nothing."""
    problems = _damaged_files(store) or _damaged_samples(store, progress)
    more = f"; and {len(problems) - _MAX_NAMED:,} more" if len(problems) > _MAX_NAMED else ""
    return "; ".join(problems[:_MAX_NAMED]) + more


def _damaged_files(store: IndexedStore) -> list[str]:
    """List files that differ from what was written, apart from samples in shards."""
    problems = []
    data_file = store.damaged_file()
    if data_file is not None:
        problems.append(data_file)
    for name, entry in store.manifest.files.items():
        if name.endswith(".idx") and file_crc32(store.path / name) != entry.crc32:
            problems.append(f"{name}: its checksum differs")
    return problems


def _damaged_samples(store: IndexedStore, progress: ReportProgress) -> list[str]:
    """List samples that differ from what was packed, one line each."""
    problems, done = [], 0
    for number in range(len(store)):
        message = store.damage(number)
        if message is not None:
            problems.append(f"sample {number}, {store.name(number)} ({message})")
        done += int(store.index.records["bytes"][number])
        progress(Progress("verifying", number + 1, len(store), done))
    return problems
