"""The gauges of a run on disk, written through a memory map; gauge_reader.py reads them.

gauges.bin is a header and then rows, all of GAUGE_ROW.size bytes. The last byte of a row is written
last; where it is 0 there is no row (room is reserved before it is used, and a killed process may
leave half a row). gauges.json beside it names the gauges that rows number.
"""

import json
import os
import struct
from collections import Counter
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path

from feedline.profiler.files import owned, single
from feedline.profiler.files.descriptor import Descriptor, Mapping

GAUGES_MAGIC = b"FEEDGAU1"
GAUGES_SCHEMA = 1
GAUGES_HEADER = struct.Struct("<8sH10x")
GAUGE_ROW = struct.Struct("<qdHxB")  # ns of CLOCK_MONOTONIC, value, gauge, pad, written
# a write to the map tells other machines nothing of when it was: manifest.py asks for that
_TOUCH_NS = 5_000_000_000
assert GAUGES_HEADER.size == GAUGE_ROW.size == 20


@dataclass
class GaugeLegend:
    """Content of gauges.json."""

    schema_version: int = GAUGES_SCHEMA
    gauges: list[tuple[str, str]] = field(default_factory=list)  #: name and unit
    # source or gauge -> why it was not, or no longer, sampled
    absent: dict[str, str] = field(default_factory=dict)
    # facts that sources give once (GPUs, links between them, memory)
    machine: dict[str, object] = field(default_factory=dict)

    def write(self, gauges: Path) -> None:
        """Write it beside a gauge file, by an atomic rename.

        Raises:
            OSError: read-only or full.
        """
        owned.write(gauges.parent, legend_path(gauges).name, json.dumps(asdict(self), indent=1))


def legend_path(gauges: Path) -> Path:
    """Return the path of the legend of a gauge file: gauges.bin -> gauges.json."""
    return gauges.with_suffix(".json")


_CHUNK_BYTES = 64 * 1024
MAX_BYTES = 2_000_000  # 100,000 rows: 25 gauges at 1 Hz for more than an hour at full detail


class GaugeWriter:
    """The gauge file of one process.

    When it is full it discards every second value of each gauge and continues; ``thinned``
    counts how often, so that the caller can take half as many samples from then on and the whole
    run stays evenly spaced.

    Args:
        path: a file that does not exist, in a folder that feedline made.
        max_bytes: bound on the file. While it is thinned, a second one of half the size exists.

    Raises:
        OSError: the file exists or cannot be made, or the disk is full.
    """

    def __init__(self, path: Path, max_bytes: int = MAX_BYTES) -> None:
        self.path = path
        self.thinned = 0
        self._max_bytes = max_bytes
        self._pid = os.getpid()
        self._size = 0
        self._touched_ns = 0
        self._used = GAUGES_HEADER.size
        fd = owned.create(path.parent, path.name)
        self._file = Descriptor(fd, path.absolute())
        try:
            self._map = self._allocate(fd, GAUGES_HEADER.size)
        except OSError:
            self._file.close()
            with suppress(OSError):
                owned.discard(path.parent, path.name)
            raise
        GAUGES_HEADER.pack_into(self._map.view, 0, GAUGES_MAGIC, GAUGES_SCHEMA)

    def append(self, time_ns: int, rows: Sequence[tuple[int, float]]) -> None:
        """Write one tick: (gauge number, value) each.

        It does nothing in a forked child, whose map is the parent's file.

        Raises:
            OSError: no room on the disk. What was written before stays readable.
        """
        if os.getpid() != self._pid:
            return
        while self._used + len(rows) * GAUGE_ROW.size > self._size:
            self._grow(len(rows) * GAUGE_ROW.size)
        for gauge, value in rows:
            GAUGE_ROW.pack_into(self._map.view, self._used, time_ns, value, gauge, 1)
            self._used += GAUGE_ROW.size
        if not 0 <= time_ns - self._touched_ns < _TOUCH_NS:
            self._touched_ns = time_ns
            os.utime(self._file.number())

    def close(self) -> None:
        """Truncate the unused end of the file."""
        if os.getpid() != self._pid:
            return
        self._map.close()
        os.ftruncate(self._file.number(), self._used)
        self._file.close()

    def _allocate(self, fd: int, at_least: int) -> Mapping:
        """Reserve whole chunks and map them.

        Reserved first: a write to a sparse map on a full disk is SIGBUS, which kills the training.
        """
        size = -(-at_least // _CHUNK_BYTES) * _CHUNK_BYTES
        os.posix_fallocate(fd, 0, size)
        mapped = Mapping(fd, size)
        self._size = size
        return mapped

    def _grow(self, more: int) -> None:
        if self._size + _CHUNK_BYTES > self._max_bytes:
            self._thin(more)
            return
        mapped = self._allocate(self._file.number(), self._used + more)
        self._map.close()
        self._map = mapped

    def _thin(self, more: int) -> None:
        """Forget every second value of each gauge, in a new file that takes the old one's place.

        That is one rename: a reader sees either.
        """
        rows = bytes(self._map.view[GAUGES_HEADER.size : self._used])
        gauges = [gauge for _, _, gauge, _ in GAUGE_ROW.iter_unpack(rows)]
        number = Counter(gauges)
        left, parts = number.copy(), []
        for row, gauge in enumerate(gauges):
            # not the last one: the tick under way is then twice a period after the one before
            if left[gauge] % 2 == 0 or number[gauge] == 1:
                parts.append(rows[row * GAUGE_ROW.size : (row + 1) * GAUGE_ROW.size])
            left[gauge] -= 1
        kept = b"".join(parts)
        with single.replacement(self.path) as fd:
            mapped = self._allocate(fd, GAUGES_HEADER.size + len(kept) + more)
            GAUGES_HEADER.pack_into(mapped.view, 0, GAUGES_MAGIC, GAUGES_SCHEMA)
            mapped.view[GAUGES_HEADER.size : GAUGES_HEADER.size + len(kept)] = kept
        self._map.close()
        self._file.close()
        self._map, self._file = mapped, Descriptor(fd, self.path.absolute())
        self._used = GAUGES_HEADER.size + len(kept)
        self.thinned += 1
