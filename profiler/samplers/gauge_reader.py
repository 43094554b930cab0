"""Reads the gauges of a run (gauge_file.py), live, finished or killed. It needs no torch."""

from pathlib import Path
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from feedline.profiler.errors import RunDamaged, SchemaTooNew
from feedline.profiler.files.bounded import MOST_GAUGES, MOST_JSON, json_of, one_line, whole
from feedline.profiler.files.checking import checked
from feedline.profiler.samplers.gauge_file import (
    GAUGE_ROW,
    GAUGES_HEADER,
    GAUGES_MAGIC,
    GAUGES_SCHEMA,
    GaugeLegend,
    legend_path,
)
from feedline.profiler.store import shapes

#: A row as in GAUGE_ROW.
_ROW_DTYPE = np.dtype(
    [("time", "<i8"), ("value", "<f8"), ("gauge", "<u2"), ("pad", "u1"), ("written", "u1")]
)
assert _ROW_DTYPE.itemsize == GAUGE_ROW.size
# beyond them, and where a value is not a number, the file was changed or damaged
_MOST_NS, _MOST_VALUE = (1 << 60, 1e24)


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


def _read_legend(gauges: Path) -> GaugeLegend:
    """Read the legend of a gauge file.

    Raises:
        FileNotFoundError: nothing was sampled.
        RunDamaged: it is not JSON, or not of a gauge file.
        SchemaTooNew: a newer feedline wrote it.
    """
    path = legend_path(gauges)
    try:
        data = json_of(whole(path, MOST_JSON))
        version = checked(data, shapes.VersionShape)["schema_version"]
        legend = checked(data, shapes.LegendShape) if version <= GAUGES_SCHEMA else {}
    except ValueError as error:
        raise RunDamaged(
            f"{path} cannot be read ({one_line(error)}): delete it and {gauges.name} to see the "
            f"run without gauges"
        ) from error
    if version > GAUGES_SCHEMA:
        raise SchemaTooNew.of(path, version, GAUGES_SCHEMA)
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
    beginning = data[: len(GAUGES_MAGIC)].rstrip(b"\0")
    if not GAUGES_MAGIC.startswith(beginning):
        raise RunDamaged(f"{path} is not a gauge file: delete it to see the run without gauges")
    body = data[GAUGES_HEADER.size :]
    rows = np.frombuffer(body, _ROW_DTYPE, count=len(body) // GAUGE_ROW.size)
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
