"""Common parts of the formats that append samples to data files: tar, RecordIO and TFRecord.

A sample's bytes in a shard are its frame; frames lie one after another. Reading one sample is one
``pread``.
"""

import os
import zlib
from collections.abc import Callable, Iterable
from functools import partial
from pathlib import Path
from typing import BinaryIO, ClassVar

import numpy as np

from feedline.pipelines.stores.index import SPLIT_VALUE, FramePlace, Index, StoredSample
from feedline.pipelines.stores.packed import IndexedStore, see_that_it_stands
from feedline.profiler.files import output, owned

_BUFFER_BYTES = 1 << 20  # a write call for each small chunk would cost more than its copy


def _shard_name(number: int, suffix: str) -> str:
    return f"data-{number:05d}.{suffix}"


class ShardWriter:
    """Writes frames, and starts a new shard when one is long enough.

    The format defines a frame.
    """

    suffix: ClassVar[str]
    end: ClassVar[bytes] = b""  #: what a shard ends with

    def __init__(self, folder: Path, shard_bytes: int, total_bytes: int) -> None:
        """Begin without a shard."""
        self._folder = folder
        self._shard_bytes = shard_bytes
        self._shard = -1
        self._at = 0
        self._file: BinaryIO | None = None

    def frame(self, sample: StoredSample) -> tuple[list[bytes], int]:
        """Return the frame in pieces, and where the value is in it, or ``SPLIT_VALUE``."""
        raise NotImplementedError

    def side_file(self, index: Index, rows: range) -> Iterable[str]:
        """Yield lines of the text file beside a shard, for the samples in it."""
        raise NotImplementedError

    def recover(self, index: Index) -> int:
        """Keep the complete samples from the first on; returns their number."""
        complete = 0
        shards = _Frames(self._folder, self.suffix)
        try:
            while complete < len(index) and zlib.crc32(shards.read(index.records[complete])) == int(
                index.records[complete]["frame_crc32"]
            ):
                complete += 1
        except OSError:
            pass
        finally:
            shards.close()
        last = int(index.records["shard"][complete - 1]) if complete else -1
        for path in self._folder.glob(f"data-*.{self.suffix}"):
            if int(path.stem.partition("-")[2]) > last:
                owned.discard(self._folder, path.name)
        for shard in range(last + 1):
            rows = _rows_of(index.head(complete), shard)
            end = int(index.records["start"][rows[-1]] + index.records["stored"][rows[-1]])
            self._file = self._open(shard, end)
            self._shard, self._at = shard, end
            if shard < last:
                self._seal()
        return complete

    def add(self, sample: StoredSample) -> FramePlace:
        """Write a sample. Raises OSError."""
        if self._file is None or self._at >= self._shard_bytes:
            self._seal()
            self._shard, self._at = self._shard + 1, 0
            self._file = self._open(self._shard, 0)
        pieces, skip = self.frame(sample)
        crc32, start = 0, self._at
        for piece in pieces:
            self._file.write(piece)
            crc32 = zlib.crc32(piece, crc32)
            self._at += len(piece)
        return FramePlace(self._shard, start, self._at - start, skip, crc32)

    def checkpoint(self) -> None:
        """Hand what was written to the kernel, where it survives a kill."""
        if self._file is not None:
            self._file.flush()

    def finish(self, index: Index) -> list[str]:
        """Write the side files; returns the names of all files."""
        self._seal()
        names = []
        for shard in range(self._shard + 1):
            names += [_shard_name(shard, self.suffix), _shard_name(shard, "idx")]
            with owned.replacing(self._folder, names[-1], output.SHARED) as file:
                file.writelines(
                    os.fsencode(line) for line in self.side_file(index, _rows_of(index, shard))
                )
                file.flush()
                os.fsync(file.fileno())
        return names

    def close(self) -> None:
        """Close the open shard."""
        file, self._file = self._file, None
        if file is not None:
            file.close()

    def _open(self, shard: int, keep_bytes: int) -> BinaryIO:
        return owned.append(
            self._folder, _shard_name(shard, self.suffix), keep_bytes, output.SHARED, _BUFFER_BYTES
        )

    def _seal(self) -> None:
        if self._file is not None:
            self._file.write(self.end)
            self._file.flush()
            os.fsync(self._file.fileno())
            self.close()


class _OpenShard:
    """A file open for reading.

    It is closed once nothing uses it: never while a thread is reading.
    """

    def __init__(self, handle: int) -> None:
        self.handle = handle

    def __del__(self) -> None:
        os.close(self.handle)


class _Frames:
    """Reads frames and keeps the files open.

    ``pread`` moves no file position, so forks and threads can share them.

    Args:
        check: called after a file was opened by its name; raises where it is another store's.
    """

    def __init__(self, folder: Path, suffix: str, check: Callable[[], None] | None = None) -> None:
        self._folder = folder
        self._suffix = suffix
        self._check = check
        self._open: dict[int, _OpenShard] = {}

    def piece(self, shard: int, start: int, length: int) -> bytes:
        """Read bytes of a shard. Raises OSError, also where the file ends before that."""
        opened = self._open.get(shard)
        if opened is None:
            file = self._folder / _shard_name(shard, self._suffix)
            opened = _OpenShard(os.open(file, os.O_RDONLY | os.O_CLOEXEC))
            if self._check is not None:
                self._check()
            opened = self._open.setdefault(shard, opened)  # another thread may have been faster
        got = os.pread(opened.handle, length, start)
        while len(got) < length:  # one call hands over 2 GiB at most
            more = os.pread(opened.handle, length - len(got), start + len(got))
            if not more:
                raise OSError(
                    f"{_shard_name(shard, self._suffix)} ends before byte {start + length:,}"
                )
            got += more
        return got

    def read(self, record: np.void) -> bytes:
        """Read a whole frame. Raises OSError."""
        return self.piece(int(record["shard"]), int(record["start"]), int(record["stored"]))

    def close(self) -> None:
        self._open.clear()


class ShardStore(IndexedStore):
    """Reads what a ShardWriter wrote."""

    writer: ClassVar[type[ShardWriter]]

    def __init__(self, path: Path | str) -> None:
        """Open the store; shards are opened when they are read."""
        super().__init__(path)
        records = self.index.records
        self._shard, self._split = records["shard"], records["skip"] == SPLIT_VALUE
        self._frames = _Frames(
            self.path,
            self.writer.suffix,
            partial(see_that_it_stands, self.path, self._stamp, self.manifest),
        )

    def close(self) -> None:
        """Close the shards; reading opens them again."""
        frames = getattr(self, "_frames", None)
        if frames is not None:
            frames.close()

    def unframe(self, frame: bytes) -> bytes:
        """Return the value of a frame in which it is split. Raises ValueError."""
        raise ValueError(f"{self.writer.suffix}: a value is always in one piece")

    def damage(self, number: int) -> str | None:
        """Compare a sample's frame and value with their checksums."""
        record = self.index.records[number]
        where = (
            f"{_shard_name(int(record['shard']), self.writer.suffix)} from byte "
            f"{int(record['start']):,}"
        )
        try:
            frame, value = self._frames.read(record), self._read(number)
        except (OSError, ValueError) as error:
            return f"{where}: {error}"
        if zlib.crc32(frame) != int(record["frame_crc32"]) or zlib.crc32(value) != int(
            record["value_crc32"]
        ):
            return f"{where}: its checksum differs"
        return None

    def damaged_file(self) -> str | None:
        """Compare the ends of the shards with what was written."""
        records, end = self.index.records, self.writer.end
        last = np.flatnonzero(np.diff(records["shard"], append=SPLIT_VALUE))
        for record in records[last]:
            shard, at = int(record["shard"]), int(record["start"] + record["stored"])
            if self._frames.piece(shard, at, len(end)) != end:
                return f"{_shard_name(shard, self.writer.suffix)}: its end is not what was written"
        return None

    def _read(self, number: int) -> bytes:
        if self._split[number]:
            return self.unframe(self._frames.read(self.index.records[number]))
        return self._frames.piece(
            int(self._shard[number]), int(self._start[number]), int(self._bytes[number])
        )

    def _cut(self, name: str, length: int) -> str:
        shard, records = int(name.partition("-")[2].partition(".")[0]), self.index.records
        ends = records["start"] + records["stored"]
        lost = np.flatnonzero((records["shard"] == shard) & (ends > length))
        if not name.endswith(self.writer.suffix) or not len(lost):
            return ""
        first = int(lost[0])
        return (
            f", so that {len(lost):,} samples are lost, from sample {first}, {self.name(first)}, on"
        )


def _rows_of(index: Index, shard: int) -> range:
    """Return the numbers of the samples in a shard."""
    first, last = np.searchsorted(index.records["shard"], [shard, shard + 1])
    return range(int(first), int(last))
