"""The two JSON files of a packed store: pack.json during packing, manifest.json once it is complete."""

import json
import os
import shlex
import zlib
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from feedline.pipelines.stores.index import INDEX, RECORD
from feedline.pipelines.stores.protocol import LeftOut
from feedline.profiler.errors import SchemaTooNew, StoreDamaged
from feedline.profiler.files import output, owned

MANIFEST = "manifest.json"
PLAN = "pack.json"
_SCHEMA = 1


@dataclass(frozen=True)
class Plan:
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

    def same_data(self, other: "Plan") -> bool:
        """Whether both plans would make the same store."""
        mine, others = (asdict(plan) | {"source": "", "refuse": False} for plan in (self, other))
        return mine == others

    def command(self, folder: Path) -> str:
        """The command that continues the pack."""
        return shlex.join(["feedline", "pack", self.source, "-o", str(folder), "--kind", self.kind])

    def write(self, folder: Path) -> None:
        """Raises OSError."""
        _write_atomically(folder / PLAN, asdict(self))

    @classmethod
    def read(cls, folder: Path) -> "Plan | None":
        """None: there is none that can be read."""
        try:
            return cls(**json.loads((folder / PLAN).read_text()))
        except (OSError, ValueError, TypeError):
            return None


@dataclass(frozen=True)
class FileSum:
    """A file of the store; ``crc32`` None: its samples have checksums of their own."""

    bytes: int
    crc32: int | None


@dataclass(frozen=True)
class Manifest:
    """Description of a complete store.

    Attributes:
        bytes: of the samples' values, that is of the original files.
        files: by name, all files of the store but this one.
    """

    plan: Plan
    samples: int
    bytes: int
    classes: list[str]
    files: dict[str, FileSum]
    left_out: list[LeftOut]

    def write(self, folder: Path) -> None:
        """Write it; the store is complete from here on. Raises OSError."""
        body = {"feedline_store": _SCHEMA, **asdict(self)}
        body["plan"]["source"] = ""  # where it came from does not change what it is
        _write_atomically(folder / MANIFEST, {**body, "crc32": checksum(body)})

    @classmethod
    def read(cls, folder: Path) -> "Manifest":
        """Read it.

        Raises:
            StoreDamaged: there is none, so that the store is not whole, or it is not what was written.
            SchemaTooNew: a newer feedline packed it.
        """
        try:
            body: dict[str, Any] = json.loads((folder / MANIFEST).read_bytes())
            schema, crc32 = int(body["feedline_store"]), body.pop("crc32")
        except FileNotFoundError:
            raise StoreDamaged(_not_whole(folder)) from None
        except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
            raise StoreDamaged(f"{folder / MANIFEST} cannot be read ({error}): {redo(folder)}") from error
        if schema > _SCHEMA:
            raise SchemaTooNew.of(folder, schema, _SCHEMA, "packed")
        if checksum(body) != crc32:
            raise StoreDamaged(f"{folder / MANIFEST} does not match its checksum: {redo(folder)}")
        sums = {name: FileSum(**entry) for name, entry in body["files"].items()}
        left_out = [LeftOut(**entry) for entry in body["left_out"]]
        return cls(Plan(**body["plan"]), body["samples"], body["bytes"], body["classes"], sums, left_out)


def redo(folder: Path) -> str:
    """The way out if nothing can be saved."""
    return f"pack it again with feedline pack DIR -o {shlex.quote(str(folder))} --kind KIND -f"


def _not_whole(folder: Path) -> str:
    """The message for a store without a manifest, with the way to continue."""
    plan = Plan.read(folder)
    if plan is None:
        return f"{folder} is not a complete store (no {MANIFEST}): {redo(folder)}"
    done = (folder / INDEX).stat().st_size // RECORD.itemsize if (folder / INDEX).exists() else 0
    return (
        f"{folder} is incomplete: packing stopped after {done:,} of {plan.files:,} files. "
        f"Continue with {plan.command(folder)}, or start over with -f"
    )


def checksum(body: dict[str, Any]) -> int:
    """CRC-32 of a JSON object, independent of the order of its keys."""
    return zlib.crc32(json.dumps(body, sort_keys=True).encode())


def _write_atomically(path: Path, body: dict[str, Any]) -> None:
    """Write a file so that readers see either the old or the new one, even after a power loss. Raises OSError."""
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
