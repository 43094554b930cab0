"""Reads a packed store back and compares everything with its checksums."""

from dataclasses import dataclass
from pathlib import Path

from feedline.pipelines.stores.indexed import IndexedStore
from feedline.pipelines.stores.kinds import open_packed
from feedline.pipelines.stores.lmdb import file_crc32
from feedline.pipelines.stores.manifest import redo
from feedline.pipelines.stores.protocol import Progress, Report, no_report
from feedline.profiler.errors import StoreDamaged

_NAMED = 5  # damaged samples that a message names


@dataclass(frozen=True)
class Verified:
    """The size of a store that matches its checksums.

    Attributes:
        bytes: of the samples' values.
    """

    samples: int
    bytes: int


def verify(path: Path | str, progress: Report = no_report) -> Verified:
    """Read every sample and every file of a packed store.

    Raises:
        StoreDamaged: it is not whole, or not what was packed: names files and samples, and counts them.
    """
    store = open_packed(Path(path))
    try:
        problems = _damaged_files(store)
        problems = problems or _damaged_samples(store, progress)
    finally:
        store.close()
    if problems:
        more = f"; and {len(problems) - _NAMED:,} more" if len(problems) > _NAMED else ""
        raise StoreDamaged(f"{path} is not what was packed: {'; '.join(problems[:_NAMED])}{more}: {redo(Path(path))}")
    return Verified(len(store), store.manifest.bytes)


def _damaged_files(store: IndexedStore) -> list[str]:
    """Files that differ from what was written, apart from samples in shards."""
    problems = []
    whole = store.damaged_file()
    if whole is not None:
        problems.append(whole)
    for name, entry in store.manifest.files.items():
        if name.endswith(".idx") and file_crc32(store.path / name) != entry.crc32:
            problems.append(f"{name}: its checksum differs")
    return problems


def _damaged_samples(store: IndexedStore, progress: Report) -> list[str]:
    """One line per sample that differs from what was packed."""
    problems, done = [], 0
    for number in range(len(store)):
        message = store.damage(number)
        if message is not None:
            problems.append(f"sample {number}, {store.name(number)} ({message})")
        done += int(store.index.records["bytes"][number])
        progress(Progress("verifying", number + 1, len(store), done))
    return problems
