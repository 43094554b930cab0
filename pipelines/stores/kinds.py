"""The formats of stores, and how to open one."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from feedline.pipelines.stores import lmdb, recordio, tar, tfrecord
from feedline.pipelines.stores.files import FileStore
from feedline.pipelines.stores.indexed import IndexedStore
from feedline.pipelines.stores.manifest import MANIFEST, PLAN, Manifest, redo
from feedline.pipelines.stores.protocol import Store, Writer
from feedline.profiler.errors import DataError, StoreDamaged


@dataclass(frozen=True)
class StoreKind:
    """A format.

    Attributes:
        writer: called with the folder, bytes after which a shard ends, and bytes that all will take. Raises MissingDependency, OSError.
        store: opens a whole store. Raises StoreDamaged.
        stored_bytes: how much a file of some bytes, with a path of some bytes, takes at most.
    """

    name: str
    about: str
    writer: Callable[[Path, int, int], Writer]
    store: type[IndexedStore]
    stored_bytes: Callable[[int, int], int]


KINDS = {
    kind.name: kind
    for kind in (
        StoreKind("lmdb", "one LMDB database", lmdb.LMDBWriter, lmdb.LMDBStore, lmdb.stored_bytes),
        StoreKind("tar", "WebDataset tar files", tar.TarWriter, tar.TarStore, tar.stored_bytes),
        StoreKind("recordio", "MXNet RecordIO files", recordio.RecordIOWriter, recordio.RecordIOStore, recordio.stored_bytes),
        StoreKind("tfrecord", "TensorFlow TFRecord files", tfrecord.TFRecordWriter, tfrecord.TFRecordStore, tfrecord.stored_bytes),
    )
}


def open_store(path: Path | str) -> Store:
    """Open a packed store, or an image folder.

    Raises:
        StoreDamaged: a packed store that is not whole, or whose files are gone, cut off or changed.
        SchemaTooNew: a newer feedline packed it.
        DataError: there is nothing of the kind.
    """
    folder = Path(path)
    if not (folder / MANIFEST).exists() and not (folder / PLAN).exists():
        if not folder.is_dir():
            raise DataError(
                f"{folder} is neither a store nor an image folder: give a packed store, or a folder with one subfolder per class"
            )
        return FileStore(folder)
    return open_packed(folder)


def open_packed(folder: Path) -> IndexedStore:
    """Open a packed store. Raises StoreDamaged, SchemaTooNew."""
    kind = Manifest.read(folder).plan.kind
    if kind not in KINDS:
        raise StoreDamaged(f"{folder} has kind {kind!r}, which this version of feedline does not support: {redo(folder)}")
    return KINDS[kind].store(folder)
