"""The index of a packed store, which is its journal while it is being packed.

Also the interfaces of stores and of their writers.
"""

import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

import numpy as np

from feedline.profiler.files import output, owned

INDEX_FILE = "index.bin"
PATHS_FILE = "paths.bin"
# as ``skip``: the value is not in one piece and has to be put together from its frame
SPLIT_VALUE = 0xFFFFFFFF

# A frame is all that a format writes for one sample; frames lie one after another in a shard.
INDEX_RECORD = np.dtype(
    [
        ("start", "<u8"),  # of the frame in its shard, bytes
        ("stored", "<u8"),  # length of the frame, bytes
        ("bytes", "<u8"),  # length of the value: the original file
        ("path_end", "<u8"),  # in paths.bin; a path begins where the one before it ends
        ("skip", "<u4"),  # from the frame's start to the value's, bytes
        ("frame_crc32", "<u4"),
        ("value_crc32", "<u4"),
        ("label", "<i4"),
        ("shard", "<u4"),
        ("source", "<u4"),  # place in the listing of the folder that was packed
        ("ending", "S8"),  # by content: jpg, png, ...
    ]
)


@dataclass(frozen=True)
class FramePlace:
    """Where a writer put a sample; fields as in ``INDEX_RECORD``."""

    shard: int
    start: int
    stored: int
    skip: int
    frame_crc32: int


class Index:
    """The index: columns over all samples.

    Attributes:
        records: structured array [n] of ``INDEX_RECORD``.
    """

    def __init__(self, records: np.ndarray, paths: bytes) -> None:
        """Take the records, and the text of all paths."""
        self.records = records
        self._paths = paths
        self._path_end = records["path_end"]

    def __len__(self) -> int:
        """Return the number of samples."""
        return len(self.records)

    def path(self, number: int) -> str:
        """Return the sample's path, relative to the folder that was packed.

        Bytes that are not UTF-8 are surrogates (PEP 383).
        """
        begin = int(self._path_end[number - 1]) if number else 0
        return os.fsdecode(self._paths[begin : int(self._path_end[number])])

    @classmethod
    def empty(cls) -> "Index":
        """Make an index without samples."""
        return cls(np.zeros(0, INDEX_RECORD), b"")

    def head(self, count: int) -> "Index":
        """Return the first ``count`` samples."""
        return Index(self.records[:count], self._paths)

    @classmethod
    def load(cls, folder: Path) -> "Index":
        """Read the index, up to the first damaged record. Raises OSError.

        That is one that was truncated or that a power loss left empty.
        """
        raw, paths = (folder / INDEX_FILE).read_bytes(), (folder / PATHS_FILE).read_bytes()
        records = np.frombuffer(
            raw[: len(raw) // INDEX_RECORD.itemsize * INDEX_RECORD.itemsize], INDEX_RECORD
        )
        ends = records["path_end"]
        # no path is empty
        complete = (ends <= len(paths)) & (ends > np.concatenate((np.zeros(1, "<u8"), ends[:-1])))
        return cls(records[: int(np.argmin(np.append(complete, False)))], paths)


class Journal:
    """Appends to the index; nothing is on the disk before ``flush``."""

    def __init__(self, folder: Path, keep: Index) -> None:
        """Continue after the samples of ``keep``, and cut off what follows them.

        Raises OSError.
        """
        self.count = len(keep)
        self._path_end = int(keep.records["path_end"][-1]) if self.count else 0
        self._files = [
            owned.append(folder, INDEX_FILE, self.count * INDEX_RECORD.itemsize, output.SHARED),
            owned.append(folder, PATHS_FILE, self._path_end, output.SHARED),
        ]
        self._records: list[tuple[object, ...]] = []
        self._paths: list[bytes] = []

    def add(
        self,
        place: FramePlace,
        value_bytes: int,
        value_crc32: int,
        label: int,
        source: int,
        ending: str,
        path: str,
    ) -> None:
        """Add a sample."""
        encoded = os.fsencode(path)
        self._path_end += len(encoded)
        fields = (
            place.start,
            place.stored,
            value_bytes,
            self._path_end,
            place.skip,
            place.frame_crc32,
            value_crc32,
            label,
        )
        self._records.append((*fields, place.shard, source, ending.encode()))
        self._paths.append(encoded)
        self.count += 1

    def flush(self) -> None:
        """Flush everything to the disk.

        The paths first: a record without its path does not count.
        """
        for file, new in (
            (self._files[1], b"".join(self._paths)),
            (self._files[0], np.array(self._records, INDEX_RECORD).tobytes()),
        ):
            view = memoryview(new)
            while view:
                view = view[file.write(view) :]
            os.fsync(file.fileno())
        self._records, self._paths = [], []

    def close(self) -> None:
        """Close the files."""
        for file in self._files:
            file.close()


class Store(Protocol):
    """A dataset open for reading.

    It can be pickled and shared by threads, and works in a forked or spawned process.
    """

    path: Path
    classes: list[str]  #: a label is a place in it

    def __len__(self) -> int:
        """Return the number of samples."""

    def __getitem__(self, number: int) -> tuple[bytes, int]:
        """Return the bytes of the original file, and its label. Raises IndexError."""

    def name(self, number: int) -> str:
        """Return the original file's path, relative to the folder that was packed."""

    def close(self) -> None:
        """Close its files; reading opens them again."""


@dataclass(frozen=True)
class StoredSample:
    """A file to be put into a store.

    Attributes:
        number: its place in the store.
        ending: by its content: ``jpg``, ``png``, ...
    """

    number: int
    value: bytes
    label: int
    path: str
    ending: str


class StoreWriter(Protocol):
    """Adds samples to a store. Whatever it raises, what it wrote before can be recovered."""

    def recover(self, index: Index) -> int:
        """Return how many of the journalled samples, from the first on, are complete.

        Called after a kill; the rest is cut off.
        """

    def add(self, sample: StoredSample) -> FramePlace:
        """Write a sample, with the next number. Raises OSError."""

    def checkpoint(self) -> None:
        """Make the samples added so far survive a kill; the journal is already on the disk."""

    def finish(self, index: Index) -> list[str]:
        """Write the files for other libraries, and flush everything to the disk.

        Returns:
            The names of the files.
        """

    def close(self) -> None:
        """Close its files; called once, after ``finish`` or an error."""


@dataclass(frozen=True)
class LeftOut:
    """A file that is not in the store."""

    path: str
    message: str


@dataclass(frozen=True)
class Progress:
    """Progress of packing or verifying.

    Attributes:
        doing: ``checking`` (what an earlier, killed pack left), ``packing`` or ``verifying``.
        done, total: files.
        bytes: of the files done.
    """

    doing: str
    done: int
    total: int
    bytes: int


ReportProgress = Callable[[Progress], None]


def ignore_progress(progress: Progress) -> None:
    """Do nothing with progress."""
