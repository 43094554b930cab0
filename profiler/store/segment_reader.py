"""Reads the segment of a process, whether live, finished or killed.

Its records are validated, so that analysis can calculate with them: times and sums fit into 64
bits, whatever a file contains.
"""

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from feedline.profiler.errors import RunDamaged
from feedline.profiler.events import UNMEASURED, Flag, Stage
from feedline.profiler.files.bounded import MOST_SEGMENT, OF_SEGMENT, json_of, one_line, whole
from feedline.profiler.files.checking import MOST_NS, MOST_RANKS, checked
from feedline.profiler.store import record_columns
from feedline.profiler.store.layout import (
    BINS,
    FIELDS,
    HISTOGRAMS_AT,
    MAGIC,
    PAGE,
    RECORDS_AT,
    STAGES,
    TOTALS_AT,
)
from feedline.profiler.store.record_columns import RECORD_DTYPE, sums_of
from feedline.profiler.store.shapes import MainShape, WorkerShape


@dataclass(frozen=True)
class Process:
    """The records of one process.

    Attributes:
        header: role ("main" or "worker"), pid, loader, worker, ... as the process gave it.
        records: structured array of RECORD_DTYPE in the order written, without names.
        names: of the operations in the ``source`` field.
        totals: int64 [64, 8]: sums of the records and of what was forgotten, see store/segment.py.
        histograms: int64 [2, 256].
    """

    header: dict[str, object]
    records: npt.NDArray[np.void]
    names: dict[int, str]
    totals: npt.NDArray[np.int64]
    histograms: npt.NDArray[np.int64]

    @property
    def is_worker(self) -> bool:
        return self.header.get("role") == "worker"

    @property
    def stride(self) -> int:
        """N, if one in N windows was kept."""
        return int(self.totals[0, 0]) + 1

    def of(self, *stages: Stage) -> npt.NDArray[np.void]:
        """Return the records of these stages, by the column names that all stages share."""
        return self.records[np.isin(self.records["stage"], stages)]

    def view(self, stage: Stage) -> npt.NDArray[np.void]:
        """Return the records of one stage, by its own column names (record_columns.py)."""
        return record_columns.view(self.of(stage), stage)

    def total(self, stage: Stage) -> dict[str, int]:
        """Return the sums over a stage's records, discarded ones included.

        They are by its column names, and ``records``. Unmeasured values count as 0.
        """
        return record_columns.totals(stage, self.totals[stage])

    @property
    def batches(self) -> npt.NDArray[np.void]:
        """The FETCH records that made a batch.

        Those that failed are left out, and the one at the end of an iterable dataset.
        """
        fetches = self.view(Stage.FETCH)
        return fetches[fetches["flags"] & (Flag.END | Flag.FAILED) == 0]

    @property
    def without_failed(self) -> "Process":
        """The process without batches and samples whose making raised or was interrupted.

        What they took belongs to none that was made.
        """
        making = np.isin(self.records["stage"], (Stage.FETCH, Stage.SAMPLE, Stage.COLLATE))
        failed = making & (self.records["flags"] & (Flag.FAILED | Flag.END) == Flag.FAILED)
        if not failed.any():
            return self
        return replace(
            self, records=self.records[~failed], totals=self.totals - sums_of(self.records[failed])
        )


def read_segment(path: Path) -> Process:
    """Read one segment file; it may still be being written.

    Raises:
        OSError: it is missing or may not be read.
        RunDamaged: it is too short, does not begin as a segment does, or holds what no recording
            writes.
    """
    data = whole(path, MOST_SEGMENT, OF_SEGMENT)
    if len(data) < RECORDS_AT or not data.startswith(MAGIC):
        raise RunDamaged(
            f"{path} is not a segment, or its header is truncated: its process is skipped"
        )
    try:
        header = check_header(json_of(data[len(MAGIC) : PAGE].rstrip(b"\0")))
        header["segment"] = path.stem  # what sampled stacks call it
    except ValueError as error:
        raise RunDamaged(
            f"the header of {path} cannot be read ({one_line(error)}): its process is skipped"
        ) from error
    forgotten = np.frombuffer(data, np.int64, STAGES * FIELDS, TOTALS_AT).reshape(STAGES, FIELDS)
    histograms = np.frombuffer(data, np.int64, 2 * BINS, HISTOGRAMS_AT).reshape(2, BINS)
    count = (len(data) - RECORDS_AT) // RECORD_DTYPE.itemsize
    records = np.frombuffer(data, RECORD_DTYPE, count, RECORDS_AT)
    named = records[records["stage"] == Stage.NAME]
    names = {
        int(name["source"]): name.tobytes()[:56].rstrip(b"\0").decode(errors="replace")
        for name in named
    }
    try:
        written = check_records(records[(records["stage"] != 0) & (records["stage"] != Stage.NAME)])
        totals = check_totals(check_sums(forgotten, "totals") + sums_of(written))
        return Process(header, written, names, totals, check_sums(histograms, "histograms"))
    except ValueError as error:
        raise RunDamaged(
            f"{path} contains invalid records ({error}): its process is skipped"
        ) from error


_MOST_WALL = 1 << 53  # ns: 104 days
_MOST_SUM = 1 << 62
_MOST_MEMBERS = 4_000_000  # ranks of all groups together
_MOST_OPTIMIZERS = 1 << 20
_FREE_FROM = 4  # columns of totals from here on, nbytes and extra, may be below 0
_CLOCKS = ("cpu", "runqueue", "nbytes", "extra")  # what they hold depends on the stage
_KNOWN = np.array([stage in set(Stage) for stage in range(256)])
_SIGNED = (Stage.GROUP, Stage.ARRIVE)  # extra may be below 0
_ANY_NUMBER = (Stage.VALUE, Stage.GRADIENT)  # bits of floats


def check_header(data: Any) -> dict[str, object]:
    """Return the header of a segment.

    Raises:
        ValueError: it is not one.
    """
    checked(data, dict[str, object])
    checked(data, WorkerShape if data.get("role") == "worker" else MainShape)
    if "stopped" in data:
        checked(data["stopped"], str)
    return dict(data)


def check_records(records: npt.NDArray[np.void]) -> npt.NDArray[np.void]:
    """Return the records of known stages; a newer feedline may write others.

    Raises:
        ValueError: a value is none that a recording writes; the text names column and row.
    """
    records = records[_KNOWN[records["stage"]]]
    stage = records["stage"]
    _check_range(records, "start", 0, MOST_NS - _MOST_WALL)
    _check_range(
        records, "wall", np.where(stage == Stage.START, -_MOST_WALL, UNMEASURED), _MOST_WALL
    )
    for name in _CLOCKS:
        low = (
            np.where(np.isin(stage, _SIGNED), -_MOST_SUM, UNMEASURED)
            if name == "extra"
            else UNMEASURED
        )
        _check_range(records, name, low, _MOST_SUM)
    for name in ("wall", *_CLOCKS):
        if float(np.abs(records[name].astype(float)).sum()) >= _MOST_SUM:
            raise ValueError(f"column {name}: its sum does not fit into 64 bits")
    _check_stages(records)
    return records


def _check_stages(records: npt.NDArray[np.void]) -> None:
    """Check what only some stages have."""
    _check_range(records[records["stage"] == Stage.CLOCK], "extra", 0, MOST_NS)
    numbers = records[~np.isin(records["stage"], _ANY_NUMBER)]
    _check_range(numbers, "number", -MOST_NS, MOST_NS)
    begun = records[records["stage"] == Stage.BEGUN]
    _check_range(begun, "number", 0, _MOST_OPTIMIZERS)
    _check_range(begun, "extra", 0, _MOST_OPTIMIZERS)
    groups = records[records["stage"] == Stage.GROUP]
    _check_range(groups, "number", 0, MOST_RANKS)
    _check_range(groups, "extra", -MOST_RANKS, MOST_RANKS)
    _check_range(groups, "nbytes", 0, MOST_RANKS)
    last = groups["number"] + np.maximum(groups["nbytes"] - 1, 0) * groups["extra"]
    if len(last) and (
        last.min() < 0 or last.max() >= MOST_RANKS or groups["nbytes"].sum() > _MOST_MEMBERS
    ):
        raise ValueError(
            "columns number, nbytes, extra: a record of GROUP names ranks that no launch has"
        )
    marks = records[records["stage"] == Stage.GPU]
    _check_range(marks, "extra", 1, len(_KNOWN))
    unknown = np.flatnonzero(~_KNOWN[marks["extra"]])
    if len(unknown):
        raise ValueError(
            f"column extra: {int(marks['extra'][unknown[0]])} is not the number of a stage"
        )


def _check_range(records: npt.NDArray[np.void], name: str, low: Any, high: int) -> None:
    values = records[name]
    outside = np.flatnonzero((values < low) | (values >= high))
    if len(outside):
        row = int(outside[0])
        raise ValueError(
            f"column {name}: {int(values[row])} in a record of "
            f"{Stage(int(records['stage'][row])).name} (the {row + 1:,}th of its kind)"
        )


def check_sums(sums: npt.NDArray[np.int64], what: str) -> npt.NDArray[np.int64]:
    """Return the sums of records, or counts of a histogram.

    Raises:
        ValueError: one is below 0, or too large to be calculated with.
    """
    signed = sums.ndim == 2 and what == "totals"
    low = np.where(np.arange(sums.shape[1]) >= _FREE_FROM, -_MOST_SUM, 0) if signed else 0
    rows, columns = np.nonzero((sums < low) | (sums >= _MOST_SUM))
    if len(rows):
        raise ValueError(f"{what}: {int(sums[rows[0], columns[0]])} in row {rows[0]}")
    return sums


def check_totals(totals: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    """Return the totals of a process; the first number says which windows were kept.

    Raises:
        ValueError: they are not such sums.
    """
    mask = int(totals[0, 0])
    if mask & (mask + 1) or not 0 <= mask <= 65_535:
        raise ValueError(f"totals: one window in {mask + 1} was kept, which is not a power of two")
    return check_sums(totals, "totals")
