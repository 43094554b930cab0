"""The gauges of a run on disk, and how to read them. Reading needs no torch and works on live and killed runs.

gauges.bin is a header and then rows, all of ROW.size bytes. The last byte of a row is written last; where it is 0 there is no row (room is
reserved before it is used, and a killed process may leave half a row). gauges.json beside it names the gauges that rows number.
"""

import json
import struct
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from feedline.profiler.errors import RunDamaged, SchemaTooNew
from feedline.profiler.files import owned
from feedline.profiler.files.reading import MOST_GAUGES, MOST_JSON, json_of, one_line, whole

MAGIC = b"FEEDGAU1"
SCHEMA_VERSION = 1
HEADER = struct.Struct("<8sH10x")
ROW = struct.Struct("<qdHxB")  # ns of CLOCK_MONOTONIC, value, gauge, pad, written
ROW_DTYPE = np.dtype([("time", "<i8"), ("value", "<f8"), ("gauge", "<u2"), ("pad", "u1"), ("written", "u1")])
_MOST_NS, _MOST_VALUE = 1 << 60, 1e24  # beyond them, and where a value is not a number, the file was changed or damaged
assert HEADER.size == ROW.size == ROW_DTYPE.itemsize == 20


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
        """Samples between two times, ns."""
        inside = (self.time >= begin) & (self.time <= end)
        return Gauges(self.names, self.time[inside], self.gauge[inside], self.value[inside])


@dataclass
class Legend:
    """Content of gauges.json."""

    schema_version: int = SCHEMA_VERSION
    gauges: list[tuple[str, str]] = field(default_factory=list)  #: name and unit
    absent: dict[str, str] = field(default_factory=dict)  #: source or gauge -> why it was not, or no longer, sampled
    machine: dict[str, object] = field(default_factory=dict)  #: facts that sources give once (GPUs, links between them, memory)

    def write(self, gauges: Path) -> None:
        """Write it beside a gauge file, by an atomic rename.

        Raises:
            OSError: read-only or full.
        """
        owned.write(gauges.parent, legend_path(gauges).name, json.dumps(asdict(self), indent=1))


def legend_path(gauges: Path) -> Path:
    """gauges.bin -> gauges.json"""
    return gauges.with_suffix(".json")


def read_legend(gauges: Path) -> Legend:
    """Read the legend of a gauge file.

    Raises:
        FileNotFoundError: nothing was sampled.
        RunDamaged: it is not JSON, or not of a gauge file.
        SchemaTooNew: a newer feedline wrote it.
    """
    from feedline.profiler.files.checking import checked
    from feedline.profiler.store import shapes

    path = legend_path(gauges)
    try:
        data = json_of(whole(path, MOST_JSON))
        version = checked(data, shapes.VersionShape)["schema_version"]
        legend = checked(data, shapes.LegendShape) if version <= SCHEMA_VERSION else {}
    except ValueError as error:
        raise RunDamaged(f"{path} cannot be read ({one_line(error)}): delete it and {gauges.name} to see the run without gauges") from error
    if version > SCHEMA_VERSION:
        raise SchemaTooNew.of(path, version, SCHEMA_VERSION)
    return Legend(version, legend["gauges"], legend.get("absent", {}), legend.get("machine", {}))


def read_gauges(path: Path) -> Gauges:
    """Read a gauge file, finished or not.

    Raises:
        FileNotFoundError: nothing was sampled.
        RunDamaged: not a gauge file, or it was changed or damaged.
        SchemaTooNew: a newer feedline wrote it.
    """
    legend = read_legend(path)
    data = whole(path, MOST_GAUGES)
    beginning = data[: len(MAGIC)].rstrip(b"\0")  # a file that was cut, or killed before its first byte, has a part of it or nothing
    if not MAGIC.startswith(beginning):
        raise RunDamaged(f"{path} is not a gauge file: delete it to see the run without gauges")
    body = data[HEADER.size :]
    rows = np.frombuffer(body, ROW_DTYPE, count=len(body) // ROW.size)
    rows = rows[(rows["written"] == 1) & (rows["gauge"] < len(legend.gauges))]
    if (
        not ((rows["time"] >= 0) & (rows["time"] < _MOST_NS) & (np.abs(rows["value"]) < _MOST_VALUE)).all()
        or (np.diff(rows["time"]) < 0).any()
    ):
        raise RunDamaged(f"{path} contains times or values that no sampler writes: delete it to see the run without gauges")
    return Gauges(legend.gauges, rows["time"].astype(np.int64), rows["gauge"].astype(np.int64), rows["value"].astype(np.float64))
