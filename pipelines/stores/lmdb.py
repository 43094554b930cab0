"""LMDB: data.mdb in the store's folder.

Three keys per sample: 0000000012.image (the file), 0000000012.label (decimal), 0000000012.path. Any
LMDB library opens the folder. Written without a lock file: the pack itself lets nobody else write.
"""

import errno
import os
import shutil
import subprocess
import sys
import threading
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType
from typing import Any

from feedline.pipelines.stores.index import FramePlace, Index, StoredSample
from feedline.pipelines.stores.packed import (
    FileSum,
    IndexedStore,
    StoreKind,
    StoreManifest,
    file_crc32,
    see_that_it_stands,
)
from feedline.profiler.errors import MissingDependency, StoreDamaged
from feedline.profiler.files import output, owned
from feedline.profiler.message import few

_DATA_FILE = "data.mdb"
_LMDB_PAGE_BYTES = 4096
# lmdb.h: a value of more than about half a page gets pages of its own, with one header
_PAGE_HEADER_BYTES = 16
_KEYS_PER_SAMPLE = 3
# LMDB calls a write that was cut short, which is what a full disk does, an input/output error
_FULL_BYTES = 1 << 20
# A damaged tree of pages can end the process that reads it (LMDB trusts its file), so that another
# process looks which samples are left.
_LOOK = (
    "import sys; from feedline.pipelines.stores.lmdb import _LmdbStore, _look; "
    "_look(_LmdbStore(sys.argv[1]))"
)
# of _SHARED_ENVIRONMENTS and what is in it; reentrant, as a store may be dropped at any time
_LOCK = threading.RLock()


class _LmdbWriter:
    """Writes one transaction per checkpoint: a kill loses only the open one."""

    def __init__(self, folder: Path, shard_bytes: int, total_bytes: int) -> None:
        """Open the database for writing. Raises MissingDependency, OSError."""
        self._folder = folder
        # LMDB makes nothing, so that the list has what there is
        os.close(owned.reopen(folder, _DATA_FILE, output.SHARED))
        with _as_os_errors():
            self._environment: Any = _library().open(
                str(folder), map_size=4 * total_bytes + (1 << 28), lock=False, meminit=True
            )
            self._transaction: Any = None

    def recover(self, index: Index) -> int:
        with _as_os_errors(), self._environment.begin(write=True) as transaction:
            complete = 0
            while complete < len(index) and _sample_damage(transaction, index, complete) is None:
                complete += 1
            surplus = [bytes(key) for key in _keys_from(transaction, _key_of(complete, ""))]
            for key in surplus:
                transaction.delete(key)
        return complete

    def add(self, sample: StoredSample) -> FramePlace:
        crc32 = 0
        with _as_os_errors():
            if self._transaction is None:
                self._transaction = self._environment.begin(write=True)
            for name, value in _entries(sample.value, sample.label, sample.path):
                self._transaction.put(_key_of(sample.number, name), value, append=True)
                crc32 = zlib.crc32(value, crc32)
        return FramePlace(shard=0, start=0, stored=len(sample.value), skip=0, frame_crc32=crc32)

    def checkpoint(self) -> None:
        transaction, self._transaction = self._transaction, None
        try:
            if transaction is not None:
                with _as_os_errors():
                    transaction.commit()
        except OSError as error:
            if error.errno == errno.EIO and shutil.disk_usage(self._folder).free < _FULL_BYTES:
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC)) from error
            raise

    def finish(self, index: Index) -> list[str]:
        self.checkpoint()
        with _as_os_errors():
            self._environment.sync(True)
        return [_DATA_FILE]

    def close(self) -> None:
        if self._transaction is not None:
            self._transaction.abort()
            self._transaction = None
        self._environment.close()


class _LmdbStore(IndexedStore):
    """Reads by key from the memory map."""

    def __init__(self, path: Path | str) -> None:
        super().__init__(path)
        _library()  # said at once, not when the first sample is read
        self._map: _SharedEnvironment | None = None

    def close(self) -> None:
        with _LOCK:
            here, self._map = self._map, None
            if here is not None:
                here.leave()

    def __del__(self) -> None:
        if getattr(self, "_map", None) is not None:
            self.close()

    def damage(self, number: int) -> str | None:
        try:
            with self._transaction() as transaction:
                return _sample_damage(transaction, self.index, number)
        except OSError as error:
            return f"{_DATA_FILE}: {error.strerror}"

    def damaged_file(self) -> str | None:
        if file_crc32(self.path / _DATA_FILE) == self.manifest.files[_DATA_FILE].crc32:
            return None
        done = subprocess.run(
            [sys.executable, "-c", _LOOK, str(self.path)], capture_output=True, text=True
        )
        lost = done.stdout.strip() if done.returncode == 0 else "too much for LMDB to read it"
        return f"{_DATA_FILE}: its checksum differs (damaged: {lost or 'no sample'})"

    def _read(self, number: int) -> bytes:
        with self._transaction() as transaction:
            value = transaction.get(_key_of(number, "image"))
        if value is None or len(value) != int(self._bytes[number]):
            raise ValueError(f"not under its key in {_DATA_FILE}")
        return bytes(value)

    @contextmanager
    def _transaction(self) -> Iterator[Any]:
        with _LOCK:
            if self._map is None:
                self._map = _SHARED_ENVIRONMENTS.setdefault(
                    (self.path, self.manifest.content),
                    _SharedEnvironment(self.path, self._stamp, self.manifest),
                )
                self._map.users += 1
            here = self._map
            here.users += 1  # a thread that closes the store does not close what another reads
        try:
            with _as_os_errors(), here.environment().begin() as transaction:
                yield transaction
        finally:
            with _LOCK:
                here.leave()


class _SharedEnvironment:
    """An environment open for reading, shared by all stores on one folder.

    LMDB allows one in a process, and none across a fork. A store that takes the place of another
    has one of its own.

    Attributes:
        users: stores and reads. The last one closes it.
    """

    def __init__(self, folder: Path, stamp: tuple[int, ...], manifest: StoreManifest) -> None:
        self._folder = folder
        self._stamp = stamp
        self._manifest = manifest
        self._opened: Any = None
        self.users = 0

    @property
    def is_open(self) -> bool:
        return self._opened is not None

    def environment(self) -> Any:
        """Return the environment, opened if it is not.

        Raises:
            lmdb.Error: it cannot be opened.
            StoreDamaged: that of the folder is another store's now.
        """
        if self._opened is None:
            with _LOCK:
                if self._opened is None:
                    # before as well: LMDB does not open a file that a newer store has open
                    see_that_it_stands(self._folder, self._stamp, self._manifest)
                    opened = _library().open(
                        str(self._folder),
                        readonly=True,
                        lock=False,
                        create=False,
                        max_spare_txns=16,
                    )
                    try:
                        see_that_it_stands(self._folder, self._stamp, self._manifest)
                    except StoreDamaged:
                        opened.close()
                        raise
                    self._opened = opened
        return self._opened

    def leave(self) -> None:
        """Remove one user of the environment. _LOCK must be held."""
        self.users -= 1
        if not self.users:
            del _SHARED_ENVIRONMENTS[self._folder, self._manifest.content]
            self.close()

    def close(self) -> None:
        """Close the environment; the next read opens it again.

        In a forked child this does not affect the parent.
        """
        opened, self._opened = self._opened, None
        if opened is not None:
            opened.close()


#: By folder, and the content of the store in it.
_SHARED_ENVIRONMENTS: dict[tuple[Path, tuple[tuple[str, FileSum], ...]], _SharedEnvironment] = {}


def _forked() -> None:
    """Close what a forked child has inherited."""
    global _LOCK
    _LOCK = threading.RLock()  # a thread of the parent may have held it
    for environment in _SHARED_ENVIRONMENTS.values():
        environment.close()


os.register_at_fork(after_in_child=_forked)


def _library() -> ModuleType:
    """Import py-lmdb. Raises MissingDependency."""
    try:
        import lmdb
    except ImportError as error:
        raise MissingDependency("LMDB stores need the lmdb package: pip install lmdb") from error
    return lmdb


@contextmanager
def _as_os_errors() -> Iterator[None]:
    """Raise LMDB's errors as the OSError behind them."""
    lmdb = _library()
    try:
        yield
    except lmdb.Error as error:
        full = isinstance(error, lmdb.MapFullError) or os.strerror(errno.ENOSPC) in str(error)
        raise OSError(errno.ENOSPC if full else errno.EIO, str(error)) from error


def _key_of(number: int, name: str) -> bytes:
    """Return a key with ten digits, so that keys sort as numbers."""
    return f"{number:010d}.{name}".encode()


def _entries(value: bytes, label: int, path: str) -> list[tuple[str, bytes]]:
    """Return the three key-value pairs of a sample, in the order of their keys."""
    return [("image", value), ("label", str(label).encode()), ("path", os.fsencode(path))]


def _keys_from(transaction: Any, key: bytes) -> Iterator[bytes]:
    """Yield all keys from one on."""
    with transaction.cursor() as cursor:
        if cursor.set_range(key):
            yield from cursor.iternext(values=False)


def _sample_damage(transaction: Any, index: Index, number: int) -> str | None:
    """Say how a sample differs from what was packed; None: it does not."""
    crc32 = 0
    for name in ("image", "label", "path"):
        value = transaction.get(_key_of(number, name))
        if value is None:
            return f"{_DATA_FILE}: no key {_key_of(number, name).decode()}"
        crc32 = zlib.crc32(value, crc32)
        if name == "image" and zlib.crc32(value) != int(index.records["value_crc32"][number]):
            return f"{_DATA_FILE}: the checksum of {_key_of(number, name).decode()} differs"
    return (
        None
        if crc32 == int(index.records["frame_crc32"][number])
        else f"{_DATA_FILE}: label or path of sample {number} differs"
    )


def _look(store: _LmdbStore) -> None:
    """Print the damaged samples; run in a separate process, which may crash on them."""
    names = [store.name(number) for number in range(len(store)) if store.damage(number) is not None]
    print(few(names, 5))


def _stored_bytes(size: int, path_bytes: int) -> int:
    """Return the bytes that a file takes, at most.

    These are pages of its own, and its part of a page of keys.
    """
    own = size + _PAGE_HEADER_BYTES
    keys = _KEYS_PER_SAMPLE * (8 + 2 + 16) + 8 + 11 + path_bytes
    return own + -own % _LMDB_PAGE_BYTES + keys + keys // 8


LMDB = StoreKind(
    "lmdb",
    "one LMDB database",
    _LmdbWriter,
    _LmdbStore,
    _stored_bytes,
    max_bytes=(1 << 32) - 1,  # a value's length is 32 bits
    library=_library,
)
