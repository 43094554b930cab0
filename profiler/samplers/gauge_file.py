"""The gauges of a run on disk: written through a memory map, and read.

Reading needs no torch and works on live and killed runs. gauges.bin is a header and then rows, all
of ROW.size bytes. The last byte of a row is written last; where it is 0 there is no row (room is
reserved before it is used, and a killed process may leave half a row). gauges.json beside it names
the gauges that rows number.
"""

import json
import os
import struct
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from feedline.profiler.errors import RunDamaged, SchemaTooNew
from feedline.profiler.files import owned, single
from feedline.profiler.files.bounded import MOST_GAUGES, MOST_JSON, json_of, one_line, whole
from feedline.profiler.files.descriptor import Descriptor, Mapping

_MAGIC = b"FEEDGAU1"
_GAUGES_SCHEMA = 1
GAUGES_HEADER = struct.Struct("<8sH10x")
_GAUGE_ROW = struct.Struct("<qdHxB")  # ns of CLOCK_MONOTONIC, value, gauge, pad, written
ROW_DTYPE = np.dtype(
    [("time", "<i8"), ("value", "<f8"), ("gauge", "<u2"), ("pad", "u1"), ("written", "u1")]
)
# a write to the map tells other machines nothing of when it was: manifest.py asks for that
_TOUCH_NS = 5_000_000_000
# beyond them, and where a value is not a number, the file was changed or damaged
_MOST_NS, _MOST_VALUE = (1 << 60, 1e24)
assert GAUGES_HEADER.size == _GAUGE_ROW.size == ROW_DTYPE.itemsize == 20


class Gauges(NamedTuple):
    """All samples, row by row in order of time.

    Attributes:
        names: (name, unit) of each gauge; its index is the gauge's number.
        time: int64 [n], nanoseconds of CLOCK_MONOTONIC (perf_counter_ns).
        gauge: int64 [n], index into ``names``.
        value: float64 [n], in the gauge's unit; a rate is the mean since the sample before.
    """

    names: list[tuple[str, str]]
    time: npt.NDArray[np.int64]
    gauge: npt.NDArray[np.int64]
    value: npt.NDArray[np.float64]

    def between(self, begin: int, end: int) -> "Gauges":
        """Return the samples between two times, ns."""
        inside = (self.time >= begin) & (self.time <= end)
        return Gauges(self.names, self.time[inside], self.gauge[inside], self.value[inside])


@dataclass
class GaugeLegend:
    """Content of gauges.json."""

    schema_version: int = _GAUGES_SCHEMA
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
        owned.write(gauges.parent, _legend_path(gauges).name, json.dumps(asdict(self), indent=1))


def _legend_path(gauges: Path) -> Path:
    """Return the path of the legend of a gauge file: gauges.bin -> gauges.json."""
    return gauges.with_suffix(".json")


def _read_legend(gauges: Path) -> GaugeLegend:
    """Read the legend of a gauge file.

    Raises:
        FileNotFoundError: nothing was sampled.
        RunDamaged: it is not JSON, or not of a gauge file.
        SchemaTooNew: a newer feedline wrote it.
    """
    from feedline.profiler.files.checking import checked
    from feedline.profiler.store import shapes

    path = _legend_path(gauges)
    try:
        data = json_of(whole(path, MOST_JSON))
        version = checked(data, shapes.VersionShape)["schema_version"]
        legend = checked(data, shapes.LegendShape) if version <= _GAUGES_SCHEMA else {}
    except ValueError as error:
        raise RunDamaged(
            f"{path} cannot be read ({one_line(error)}): delete it and {gauges.name} to see the "
            f"run without gauges"
        ) from error
    if version > _GAUGES_SCHEMA:
        raise SchemaTooNew.of(path, version, _GAUGES_SCHEMA)
    return GaugeLegend(
        version, legend["gauges"], legend.get("absent", {}), legend.get("machine", {})
    )


def read_gauges(path: Path) -> Gauges:
    """Read a gauge file, finished or not.

    Raises:
        FileNotFoundError: nothing was sampled.
        RunDamaged: not a gauge file, or it was changed or damaged.
        SchemaTooNew: a newer feedline wrote it.
    """
    legend = _read_legend(path)
    data = whole(path, MOST_GAUGES)
    # a file that was cut, or killed before its first byte, has a part of it or nothing
    beginning = data[: len(_MAGIC)].rstrip(b"\0")
    if not _MAGIC.startswith(beginning):
        raise RunDamaged(f"{path} is not a gauge file: delete it to see the run without gauges")
    body = data[GAUGES_HEADER.size :]
    rows = np.frombuffer(body, ROW_DTYPE, count=len(body) // _GAUGE_ROW.size)
    rows = rows[(rows["written"] == 1) & (rows["gauge"] < len(legend.gauges))]
    if (
        not (
            (rows["time"] >= 0) & (rows["time"] < _MOST_NS) & (np.abs(rows["value"]) < _MOST_VALUE)
        ).all()
        or (np.diff(rows["time"]) < 0).any()
    ):
        raise RunDamaged(
            f"{path} contains times or values that no sampler writes: delete it to see the run "
            f"without gauges"
        )
    return Gauges(
        legend.gauges,
        rows["time"].astype(np.int64),
        rows["gauge"].astype(np.int64),
        rows["value"].astype(np.float64),
    )


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
        GAUGES_HEADER.pack_into(self._map.view, 0, _MAGIC, _GAUGES_SCHEMA)

    def append(self, time_ns: int, rows: Sequence[tuple[int, float]]) -> None:
        """Write one tick: (gauge number, value) each.

        It does nothing in a forked child, whose map is the parent's file.

        Raises:
            OSError: no room on the disk. What was written before stays readable.
        """
        if os.getpid() != self._pid:
            return
        while self._used + len(rows) * _GAUGE_ROW.size > self._size:
            self._grow(len(rows) * _GAUGE_ROW.size)
        for gauge, value in rows:
            _GAUGE_ROW.pack_into(self._map.view, self._used, time_ns, value, gauge, 1)
            self._used += _GAUGE_ROW.size
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
        rows = np.frombuffer(bytes(self._map.view[GAUGES_HEADER.size : self._used]), ROW_DTYPE)
        by_gauge = np.argsort(rows["gauge"], kind="stable")
        gauge = rows["gauge"][by_gauge]
        later = np.searchsorted(gauge, gauge, "right") - np.arange(len(gauge))
        # not the last one: the tick under way is then twice a period after the one before
        alone = np.searchsorted(gauge, gauge, "right") - np.searchsorted(gauge, gauge) == 1
        kept = rows[np.sort(by_gauge[(later % 2 == 0) | alone])].tobytes()
        with single.replacement(self.path) as fd:
            mapped = self._allocate(fd, GAUGES_HEADER.size + len(kept) + more)
            GAUGES_HEADER.pack_into(mapped.view, 0, _MAGIC, _GAUGES_SCHEMA)
            mapped.view[GAUGES_HEADER.size : GAUGES_HEADER.size + len(kept)] = kept
        self._map.close()
        self._file.close()
        self._map, self._file = mapped, Descriptor(fd, self.path.absolute())
        self._used = GAUGES_HEADER.size + len(kept)
        self.thinned += 1
