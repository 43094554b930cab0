"""After a run: packs all segments of a rank into one Parquet file of records and one of sums.

Each column is compressed separately.
"""

import json
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq

from feedline.profiler.files import own_folders, owned
from feedline.profiler.files.bounded import MOST_JSON, json_of
from feedline.profiler.files.checking import checked
from feedline.profiler.files.parquet import columns, table_of
from feedline.profiler.store.layout import (
    BINS,
    EVENTS,
    FIELDS,
    SEGMENTS,
    STAGES,
    TOTALS,
    segment_paths,
)
from feedline.profiler.store.record_columns import RECORD_DTYPE
from feedline.profiler.store.segment_reader import (
    Process,
    check_header,
    check_records,
    check_sums,
    check_totals,
    read_segment,
)
from feedline.profiler.store.shapes import ProcessesShape

_AGAIN = "it was truncated or changed; record the run again"
_Sums = npt.NDArray[np.int64]
# key in the Parquet file's metadata: header and names of each process
_PROCESSES = b"feedline.processes"


def compact(folder: Path) -> None:
    """Write events.parquet and totals.parquet of a rank's folder, then remove its segments.

    If interrupted, the segments stay complete: they are read until there is an events.parquet, which
    is written last.

    Raises:
        OSError: read-only or full; the segments are still there.
        PlaceTaken: a file there is not feedline's, or a process still uses the segments.
    """
    processes = [read_segment(path) for path in segment_paths(folder)]
    if not processes:
        return
    columns = {
        "process": np.concatenate(
            [np.full(len(p.records), i, np.uint16) for i, p in enumerate(processes)]
        )
    }
    for name in RECORD_DTYPE.names or ():
        columns[name] = np.concatenate([np.ascontiguousarray(p.records[name]) for p in processes])
    about = [
        {"header": p.header, "names": {str(k): v for k, v in p.names.items()}} for p in processes
    ]
    sums = np.stack([np.concatenate([p.totals.ravel(), p.histograms.ravel()]) for p in processes])
    _write(table_of({f"process{i}": row for i, row in enumerate(sums)}), folder, TOTALS)
    _write(
        table_of(columns).replace_schema_metadata({_PROCESSES: json.dumps(about).encode()}),
        folder,
        EVENTS,
    )
    own_folders.remove(folder / SEGMENTS)


def _write(table: pa.Table, folder: Path, name: str) -> None:
    # Times grow steadily: their differences compress far better than the values.
    integers = [
        column for column in table.column_names if table.schema.field(column).type == pa.int64()
    ]
    with owned.replacing(folder, name) as file:
        pq.write_table(
            table,
            file,
            compression="zstd",
            use_dictionary=False,
            column_encoding=dict.fromkeys(integers, "DELTA_BINARY_PACKED"),
            write_page_checksum=True,
        )


def read_compact(folder: Path) -> list[Process]:
    """Return the processes of a rank that ``compact`` wrote.

    Raises:
        RunDamaged: a file is missing, was cut off or changed.
    """
    with columns(folder / EVENTS, _AGAIN) as file:
        described = checked(json_of(file.metadata(_PROCESSES, MOST_JSON)), ProcessesShape)
        everything, owner = np.empty(file.rows, RECORD_DTYPE), np.empty(file.rows, np.uint16)
        file.into(everything, {"process": owner})
        if len(owner) and owner.max() >= len(described):
            raise ValueError(f"column process: there is no process {owner.max()}")
        headers = [check_header(about["header"]) for about in described]
        records = [check_records(everything[owner == number]) for number in range(len(described))]
    names = [about["names"] for about in described]
    return [
        Process(*parts)
        for parts in zip(
            headers, records, names, *_sums(folder / TOTALS, len(described)), strict=True
        )
    ]


def _sums(path: Path, processes: int) -> tuple[list[_Sums], list[_Sums]]:
    """Return the totals and histograms of each process."""
    split = STAGES * FIELDS
    with columns(path, _AGAIN) as file:
        if file.rows != split + 2 * BINS:
            raise ValueError(f"it has {file.rows:,} rows")
        rows = {f"process{number}": np.empty(file.rows, np.int64) for number in range(processes)}
        file.into(np.empty(file.rows, np.dtype([])), rows)
        totals = [check_totals(row[:split].reshape(STAGES, FIELDS)) for row in rows.values()]
        return totals, [
            check_sums(row[split:].reshape(2, BINS), "histograms") for row in rows.values()
        ]
