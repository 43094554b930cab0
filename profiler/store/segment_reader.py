"""Reads the segment of a process, whether live, finished or killed."""

from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import numpy.typing as npt

from feedline.profiler.errors import RunDamaged
from feedline.profiler.events import RECORD_DTYPE, Flag, Stage
from feedline.profiler.files.reading import MOST_SEGMENT, OF_SEGMENT, json_of, one_line, whole
from feedline.profiler.store import columns, trusted
from feedline.profiler.store.segment import BINS, FIELDS, HISTOGRAMS_AT, MAGIC, PAGE, RECORDS_AT, STAGES, TOTALS_AT, sums_of


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
        """The records of these stages, by the column names that all stages share."""
        return self.records[np.isin(self.records["stage"], stages)]

    def view(self, stage: Stage) -> npt.NDArray[np.void]:
        """The records of one stage, by its own column names (columns.py)."""
        return columns.view(self.of(stage), stage)

    def total(self, stage: Stage) -> dict[str, int]:
        """Sums over a stage's records, discarded ones included, by its column names, and ``records``; unmeasured values count as 0."""
        return columns.totals(stage, self.totals[stage])

    @property
    def batches(self) -> npt.NDArray[np.void]:
        """The FETCH records that made a batch: not those that failed, nor the one at the end of an iterable dataset."""
        fetches = self.view(Stage.FETCH)
        return fetches[fetches["flags"] & (Flag.END | Flag.FAILED) == 0]

    @property
    def without_failed(self) -> "Process":
        """The same without batches and samples whose making raised or was interrupted: what they took belongs to none that was made."""
        making = np.isin(self.records["stage"], (Stage.FETCH, Stage.SAMPLE, Stage.COLLATE))
        failed = making & (self.records["flags"] & (Flag.FAILED | Flag.END) == Flag.FAILED)
        if not failed.any():
            return self
        return replace(self, records=self.records[~failed], totals=self.totals - sums_of(self.records[failed]))


def read_segment(path: Path) -> Process:
    """Read one segment file; it may still be being written.

    Raises:
        OSError: it is missing or may not be read.
        RunDamaged: it is too short, does not begin as a segment does, or holds what no recording writes.
    """
    data = whole(path, MOST_SEGMENT, OF_SEGMENT)
    if len(data) < RECORDS_AT or not data.startswith(MAGIC):
        raise RunDamaged(f"{path} is not a segment, or its header is truncated: its process is skipped")
    try:
        header = trusted.header(json_of(data[len(MAGIC) : PAGE].rstrip(b"\0")))
    except ValueError as error:
        raise RunDamaged(f"the header of {path} cannot be read ({one_line(error)}): its process is skipped") from error
    forgotten = np.frombuffer(data, np.int64, STAGES * FIELDS, TOTALS_AT).reshape(STAGES, FIELDS)
    histograms = np.frombuffer(data, np.int64, 2 * BINS, HISTOGRAMS_AT).reshape(2, BINS)
    count = (len(data) - RECORDS_AT) // RECORD_DTYPE.itemsize
    records = np.frombuffer(data, RECORD_DTYPE, count, RECORDS_AT)
    named = records[records["stage"] == Stage.NAME]
    names = {int(name["source"]): name.tobytes()[:56].rstrip(b"\0").decode(errors="replace") for name in named}
    try:
        written = trusted.records(records[(records["stage"] != 0) & (records["stage"] != Stage.NAME)])
        totals = trusted.totals(trusted.sums(forgotten, "totals") + sums_of(written))
        return Process(header, written, names, totals, trusted.sums(histograms, "histograms"))
    except ValueError as error:
        raise RunDamaged(f"{path} contains invalid records ({error}): its process is skipped") from error
