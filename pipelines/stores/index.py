"""The index of a packed store, which is its journal while it is being packed."""

import os
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from feedline.profiler.files import output, owned

INDEX = "index.bin"
PATHS = "paths.bin"
SPLIT = 0xFFFFFFFF  # as ``skip``: the value is not in one piece and has to be put together from its frame

# A frame is all that a format writes for one sample; frames lie one after another in a shard.
RECORD = np.dtype(
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
class Place:
    """Where a writer put a sample; fields as in ``RECORD``."""

    shard: int
    start: int
    stored: int
    skip: int
    frame_crc32: int


class Index:
    """Columns over all samples. ``records``: structured array [n] of ``RECORD``."""

    def __init__(self, records: np.ndarray, paths: bytes) -> None:
        self.records = records
        self._paths = paths
        self._path_end = records["path_end"]

    def __len__(self) -> int:
        return len(self.records)

    def path(self, number: int) -> str:
        """The sample's path, relative to the folder that was packed; bytes that are no UTF-8 as surrogates (PEP 383)."""
        begin = int(self._path_end[number - 1]) if number else 0
        return os.fsdecode(self._paths[begin : int(self._path_end[number])])

    @classmethod
    def empty(cls) -> "Index":
        return cls(np.zeros(0, RECORD), b"")

    def head(self, count: int) -> "Index":
        """The first ``count`` samples."""
        return Index(self.records[:count], self._paths)

    @classmethod
    def load(cls, folder: Path) -> "Index":
        """Read it, up to the first record that was cut off or that a loss of power left empty. Raises OSError."""
        raw, paths = (folder / INDEX).read_bytes(), (folder / PATHS).read_bytes()
        records = np.frombuffer(raw[: len(raw) // RECORD.itemsize * RECORD.itemsize], RECORD)
        ends = records["path_end"]
        whole = (ends <= len(paths)) & (ends > np.concatenate((np.zeros(1, "<u8"), ends[:-1])))  # no path is empty
        return cls(records[: int(np.argmin(np.append(whole, False)))], paths)


class Journal:
    """Appends to the index; nothing is on disk before ``flush``."""

    def __init__(self, folder: Path, keep: Index) -> None:
        """Go on after the samples of ``keep``, cutting off what follows them. Raises OSError."""
        self.count = len(keep)
        self._path_end = int(keep.records["path_end"][-1]) if self.count else 0
        self._files = [
            owned.append(folder, INDEX, self.count * RECORD.itemsize, output.SHARED),
            owned.append(folder, PATHS, self._path_end, output.SHARED),
        ]
        self._records: list[tuple[object, ...]] = []
        self._paths: list[bytes] = []

    def add(self, place: Place, value_bytes: int, value_crc32: int, label: int, source: int, ending: str, path: str) -> None:
        """Note one more sample."""
        encoded = os.fsencode(path)
        self._path_end += len(encoded)
        whole = (place.start, place.stored, value_bytes, self._path_end, place.skip, place.frame_crc32, value_crc32, label)
        self._records.append((*whole, place.shard, source, ending.encode()))
        self._paths.append(encoded)
        self.count += 1

    def flush(self) -> None:
        """Bring all on disk. The paths first: a record whose path is missing does not count."""
        for file, new in ((self._files[1], b"".join(self._paths)), (self._files[0], np.array(self._records, RECORD).tobytes())):
            view = memoryview(new)
            while view:
                view = view[file.write(view) :]
            os.fsync(file.fileno())
        self._records, self._paths = [], []

    def close(self) -> None:
        for file in self._files:
            file.close()
