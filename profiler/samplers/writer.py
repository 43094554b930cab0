"""Appends rows to a gauge file of bounded size, through a memory map: what was written survives SIGKILL."""

import os
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

import numpy as np

from feedline.profiler.files import owned, single
from feedline.profiler.files.descriptor import Descriptor, Mapping
from feedline.profiler.samplers.gauges import HEADER, MAGIC, ROW, ROW_DTYPE, SCHEMA_VERSION

CHUNK_BYTES = 64 * 1024
MAX_BYTES = 2_000_000  # 100,000 rows: 25 gauges at 1 Hz for more than an hour at full detail


class GaugeWriter:
    """One process's gauge file. Raises OSError: the file exists or cannot be made, or the disk is full.

    When it is full it forgets every second tick (all rows of one time) and goes on; ``thinned`` counts how often, so that the caller can
    take half as many samples from then on and the whole run stays evenly spaced.

    Args:
        path: a file that does not exist, in a folder that feedline made.
        max_bytes: bound on the file. While it is thinned, a second one of half the size exists.
    """

    def __init__(self, path: Path, max_bytes: int = MAX_BYTES) -> None:
        self.path = path
        self.thinned = 0
        self._max_bytes = max_bytes
        self._pid = os.getpid()
        self._size = 0
        self._used = HEADER.size
        fd = owned.create(path.parent, path.name)
        self._file = Descriptor(fd, path.absolute())
        try:
            self._map = self._allocate(fd, HEADER.size)
        except OSError:
            self._file.close()
            with suppress(OSError):
                owned.discard(path.parent, path.name)
            raise
        HEADER.pack_into(self._map.view, 0, MAGIC, SCHEMA_VERSION)

    def append(self, time_ns: int, rows: Sequence[tuple[int, float]]) -> None:
        """Write one tick: (gauge number, value) each. Does nothing in a forked child, whose map is the parent's file.

        Raises:
            OSError: no room on the disk. What was written before stays readable.
        """
        if os.getpid() != self._pid:
            return
        while self._used + len(rows) * ROW.size > self._size:
            self._grow(len(rows) * ROW.size)
        for gauge, value in rows:
            ROW.pack_into(self._map.view, self._used, time_ns, value, gauge, 1)
            self._used += ROW.size

    def close(self) -> None:
        """Give back the unused end of the file."""
        if os.getpid() != self._pid:
            return
        self._map.close()
        os.ftruncate(self._file.number(), self._used)
        self._file.close()

    def _allocate(self, fd: int, at_least: int) -> Mapping:
        """Reserve whole chunks and map them. Reserved first: a write to a sparse map on a full disk is SIGBUS, which kills the training."""
        size = -(-at_least // CHUNK_BYTES) * CHUNK_BYTES
        os.posix_fallocate(fd, 0, size)
        mapped = Mapping(fd, size)
        self._size = size
        return mapped

    def _grow(self, more: int) -> None:
        if self._size + CHUNK_BYTES > self._max_bytes:
            self._thin(more)
            return
        mapped = self._allocate(self._file.number(), self._used + more)
        self._map.close()
        self._map = mapped

    def _thin(self, more: int) -> None:
        """Forget every second tick, in a new file that takes the old one's place in one rename; a reader sees either."""
        rows = np.frombuffer(bytes(self._map.view[HEADER.size : self._used]), ROW_DTYPE)
        times, tick = np.unique(rows["time"], return_inverse=True)
        kept = rows[
            tick % 2 == len(times) % 2
        ].tobytes()  # not the last one: the tick under way is then twice a period after the one before
        with single.replacement(self.path) as fd:
            mapped = self._allocate(fd, HEADER.size + len(kept) + more)
            HEADER.pack_into(mapped.view, 0, MAGIC, SCHEMA_VERSION)
            mapped.view[HEADER.size : HEADER.size + len(kept)] = kept
        self._map.close()
        self._file.close()
        self._map, self._file = mapped, Descriptor(fd, self.path.absolute())
        self._used = HEADER.size + len(kept)
        self.thinned += 1
