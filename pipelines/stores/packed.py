"""A packed store: its two JSON files, and what all packed formats share when they are read.

pack.json is there during packing, manifest.json once the store is complete.
"""

import json
import operator
import os
import shlex
import zlib
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from feedline.pipelines.stores.index import (
    INDEX_FILE,
    INDEX_RECORD,
    PATHS_FILE,
    Index,
    LeftOut,
    StoreWriter,
)
from feedline.profiler.errors import SchemaTooNew, StoreDamaged
from feedline.profiler.files import output, owned

MANIFEST_FILE = "manifest.json"
PLAN_FILE = "pack.json"
_STORE_SCHEMA = 1


@dataclass(frozen=True)
class PackPlan:
    """What is being packed; an interrupted pack can only be continued with the same plan.

    Attributes:
        source: the folder, as it was given.
        listing: a checksum over all paths, labels, sizes and times of change, and the classes.
        files, bytes: how much there is to pack.
        shard_bytes: a shard this long is followed by the next one.
        refuse: a file that cannot be used ends the packing, rather than being left out.
    """

    kind: str
    source: str
    listing: str
    files: int
    bytes: int
    shard_bytes: int
    refuse: bool

    def same_data(self, other: "PackPlan") -> bool:
        """Tell whether both plans would make the same store."""
        mine, others = (asdict(plan) | {"source": "", "refuse": False} for plan in (self, other))
        return mine == others

    def unlike(self, other: "PackPlan") -> str:
        """Say what this plan packs and ``other``, the plan of now, does not."""
        if self.listing != other.listing:
            return (
                f"of {self.source or 'other data'} as {self.kind}, not of this data (or its files "
                f"have changed)"
            )
        if self.kind != other.kind:
            return f"of this data as {self.kind}, not as {other.kind}"
        return f"of this data in shards of {self.shard_bytes:,} bytes, not {other.shard_bytes:,}"

    def command(self, folder: Path) -> str:
        """Return the command that continues the pack."""
        command = ["feedline", "pack", self.source, "-o", str(folder), "--kind", self.kind]
        return shlex.join([*command, *["--strict"] * self.refuse])

    def write(self, folder: Path) -> None:
        """Write pack.json. Raises OSError."""
        _write_atomically(folder / PLAN_FILE, asdict(self))

    @classmethod
    def read(cls, folder: Path) -> "PackPlan | None":
        """Read pack.json; None: there is none that can be read."""
        try:
            return cls(**json.loads((folder / PLAN_FILE).read_text()))
        except (OSError, ValueError, TypeError):
            return None


@dataclass(frozen=True)
class FileSum:
    """A file of the store; ``crc32`` None: its samples have checksums of their own."""

    bytes: int
    crc32: int | None


@dataclass(frozen=True)
class StoreManifest:
    """Description of a complete store.

    Attributes:
        bytes: of the samples' values, that is of the original files.
        files: by name, all files of the store but this one.
    """

    plan: PackPlan
    samples: int
    bytes: int
    classes: list[str]
    files: dict[str, FileSum]
    left_out: list[LeftOut]

    @property
    def content(self) -> tuple[tuple[str, FileSum], ...]:
        """Its files: what tells it from a store of other samples."""
        return tuple(sorted(self.files.items()))

    def write(self, folder: Path) -> None:
        """Write it; the store is complete from here on. Raises OSError."""
        body = {"feedline_store": _STORE_SCHEMA, **asdict(self)}
        body["plan"]["source"] = ""  # where it came from does not change what it is
        _write_atomically(folder / MANIFEST_FILE, {**body, "crc32": _json_crc32(body)})

    @classmethod
    def read(cls, folder: Path) -> "StoreManifest":
        """Read it.

        Raises:
            StoreDamaged: there is none, so that the store is not whole, or it is not what was
                written.
            SchemaTooNew: a newer feedline packed it.
        """
        try:
            body: dict[str, Any] = json.loads((folder / MANIFEST_FILE).read_bytes())
            schema, crc32 = int(body["feedline_store"]), body.pop("crc32")
        except FileNotFoundError:
            raise StoreDamaged(_not_whole(folder)) from None
        except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
            raise StoreDamaged(
                f"{folder / MANIFEST_FILE} cannot be read ({error}): {how_to_repack(folder)}"
            ) from error
        if schema > _STORE_SCHEMA:
            raise SchemaTooNew.of(folder, schema, _STORE_SCHEMA, "packed")
        if _json_crc32(body) != crc32:
            raise StoreDamaged(
                f"{folder / MANIFEST_FILE} does not match its checksum: {how_to_repack(folder)}"
            )
        sums = {name: FileSum(**entry) for name, entry in body["files"].items()}
        left_out = [LeftOut(**entry) for entry in body["left_out"]]
        return cls(
            PackPlan(**body["plan"]),
            body["samples"],
            body["bytes"],
            body["classes"],
            sums,
            left_out,
        )


def stamp_of(folder: Path) -> tuple[int, ...]:
    """Return what tells a complete store from another one of the same name; empty: it is gone.

    A number of a file alone may be given to a later store's.
    """
    try:
        status = (folder / MANIFEST_FILE).stat()
    except OSError:
        return ()
    return status.st_dev, status.st_ino, status.st_mtime_ns


def see_that_it_stands(folder: Path, stamp: tuple[int, ...], manifest: StoreManifest) -> None:
    """Check, after a file of a store was opened by name, that the store is still there.

    Some file systems number a file anew each time they meet it (sshfs, s3fs): with another stamp,
    what is written in the manifest decides.

    Raises:
        StoreDamaged: another one has taken its place, to which its index does not apply.
    """
    if stamp_of(folder) == stamp:
        return
    try:
        stands = StoreManifest.read(folder) == manifest
    except (StoreDamaged, SchemaTooNew):
        stands = False
    if not stands:
        raise StoreDamaged(f"{folder} was replaced after it was opened: open it again")


def how_to_repack(folder: Path) -> str:
    """Say the way out if nothing can be saved."""
    return f"pack it again with feedline pack DIR -o {shlex.quote(str(folder))} --kind KIND -f"


def _not_whole(folder: Path) -> str:
    """Write the message for a store without a manifest, with the way to continue."""
    plan = PackPlan.read(folder)
    if plan is None:
        return f"{folder} is not a complete store (no {MANIFEST_FILE}): {how_to_repack(folder)}"
    done = (
        (folder / INDEX_FILE).stat().st_size // INDEX_RECORD.itemsize
        if (folder / INDEX_FILE).exists()
        else 0
    )
    return (
        f"{folder} is incomplete: packing stopped after {done:,} of {plan.files:,} files. "
        f"Continue with {plan.command(folder)}, or start over with -f"
    )


def _json_crc32(body: dict[str, Any]) -> int:
    """Return the CRC-32 of a JSON object, independent of the order of its keys."""
    return zlib.crc32(json.dumps(body, sort_keys=True).encode())


def file_crc32(path: Path) -> int:
    """Return the CRC-32 of a file, read in pieces. Raises OSError."""
    crc32 = 0
    with open(path, "rb", buffering=0) as file:
        while piece := file.read(1 << 20):
            crc32 = zlib.crc32(piece, crc32)
    return crc32


def _write_atomically(path: Path, body: dict[str, Any]) -> None:
    """Write a file so that readers see either the old or the new one. Raises OSError.

    Even after a power loss.
    """
    with owned.replacing(path.parent, path.name, output.SHARED) as file:
        file.write(json.dumps(body, indent=1, sort_keys=True).encode())
        file.flush()
        os.fsync(file.fileno())
    sync_folder(path.parent)


def sync_folder(folder: Path) -> None:
    """Flush the names of new files to the disk. Raises OSError."""
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


class IndexedStore:
    """A packed store.

    The index is read at once; data files are opened in each process when it first reads from them.
    """

    def __init__(self, path: Path | str) -> None:
        """Open it.

        Raises:
            StoreDamaged: it is not whole, or a file of it is gone, cut off, or (the index) not what
                was written.
            SchemaTooNew: a newer feedline packed it.
        """
        self.path = Path(path).absolute()
        self._stamp = stamp_of(self.path)
        self.manifest = StoreManifest.read(self.path)
        self.classes = self.manifest.classes
        for name in (INDEX_FILE, PATHS_FILE):
            self._check_length(name)
            if zlib.crc32((self.path / name).read_bytes()) != self.manifest.files[name].crc32:
                raise StoreDamaged(
                    f"{self.path / name} does not match its checksum: {how_to_repack(self.path)}"
                )
        self.index = Index.load(self.path)
        for name in self.manifest.files:
            self._check_length(name)
        records = self.index.records
        self._start, self._bytes, self._label = (
            records["start"] + records["skip"],
            records["bytes"],
            records["label"],
        )

    def __len__(self) -> int:
        """Return the number of samples."""
        return len(self._label)

    def __getitem__(self, number: int) -> tuple[bytes, int]:
        """Return the original file's bytes and its label.

        Raises:
            IndexError: there is no such sample.
            StoreDamaged: the bytes cannot be read, or another store has taken this one's place.
        """
        number = operator.index(number)
        if number < 0:
            number += len(self)
        if not 0 <= number < len(self):
            raise IndexError(f"sample {number} of {len(self)}")
        try:
            return self._read(number), int(self._label[number])
        except (OSError, ValueError) as error:
            raise StoreDamaged(
                f"{self.path}: sample {number}, {self.name(number)}: {error}: "
                f"{how_to_repack(self.path)}"
            ) from error

    def __reduce__(self) -> tuple[type, tuple[Path]]:
        """Pickle the path alone."""
        return type(self), (self.path,)

    def __del__(self) -> None:
        """Close what is open."""
        self.close()

    def name(self, number: int) -> str:
        """Return the original file's path, relative to the folder that was packed."""
        return self.index.path(number)

    def close(self) -> None:
        """Close what is open in this process; reading opens it again."""

    def damage(self, number: int) -> str | None:
        """Say what is wrong with a sample by its checksums; None: nothing."""
        raise NotImplementedError

    def damaged_file(self) -> str | None:
        """Name a damaged file that no sample's checksum reveals, or None."""
        return None

    def _read(self, number: int) -> bytes:
        """Read a sample. Raises OSError, ValueError."""
        raise NotImplementedError

    def _cut(self, name: str, length: int) -> str:
        """Say which samples are lost where a data file is shorter than it was."""
        return ""

    def _check_length(self, name: str) -> None:
        file = self.path / name
        expected = self.manifest.files[name].bytes
        try:
            length = file.stat().st_size
        except OSError as error:
            raise StoreDamaged(
                f"{file} is missing ({error.strerror}): {how_to_repack(self.path)}"
            ) from error
        if length != expected:
            cut = self._cut(name, length) if name not in (INDEX_FILE, PATHS_FILE) else ""
            raise StoreDamaged(
                f"{file} has {length:,} bytes, not the {expected:,} that were written{cut}: "
                f"{how_to_repack(self.path)}"
            )


def _no_library() -> None:
    """Import nothing: the format needs nothing but Python."""


@dataclass(frozen=True)
class StoreKind:
    """A format.

    Attributes:
        writer: called with the folder, bytes after which a shard ends, and bytes that all will
            take. Raises MissingDependency, OSError.
        store: opens a whole store. Raises StoreDamaged.
        stored_bytes: how much a file of some bytes, with a path of some bytes, takes at most.
        max_bytes: of a file; a larger one is refused before it is added.
        library: imports what writing needs. Raises MissingDependency.
    """

    name: str
    about: str
    writer: Callable[[Path, int, int], StoreWriter]
    store: type[IndexedStore]
    stored_bytes: Callable[[int, int], int]
    max_bytes: int = 1 << 40
    library: Callable[[], object] = _no_library
