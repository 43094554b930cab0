"""After a run: all segments of a rank in one Parquet file of records and one of sums, each column compressed by itself."""

import json
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from feedline.profiler.events import RECORD_DTYPE
from feedline.profiler.files import owned, removal
from feedline.profiler.store import segment as seg
from feedline.profiler.store.layout import EVENTS, SEGMENTS, TOTALS

if TYPE_CHECKING:
    from feedline.profiler.store.read import Process

PROCESSES = b"feedline.processes"  # key in the Parquet file's metadata: header and names of each process


def compact(folder: Path) -> None:
    """Write events.parquet and totals.parquet of a rank's folder, then remove its segments. Interrupted, it leaves the segments whole.

    Raises:
        OSError: read-only or full; the segments are still there.
        PlaceTaken: a file there is somebody else's, or a process still uses the segments.
    """
    from feedline.profiler.store.read import read_segment

    paths = sorted((folder / SEGMENTS).glob("*.seg"), key=lambda path: (path.stem != "main", path.name))
    processes = [read_segment(path) for path in paths]
    columns: dict[str, pa.Array] = {
        "process": pa.array(np.concatenate([np.full(len(p.records), i, np.uint16) for i, p in enumerate(processes)]))
    }
    for name in RECORD_DTYPE.names or ():
        columns[name] = pa.array(np.concatenate([np.ascontiguousarray(p.records[name]) for p in processes]))
    about = [{"header": p.header, "names": {str(k): v for k, v in p.names.items()}} for p in processes]
    _write(pa.table(columns).replace_schema_metadata({PROCESSES: json.dumps(about).encode()}), folder, EVENTS)
    sums = np.stack([np.concatenate([p.totals.ravel(), p.histograms.ravel()]) for p in processes])
    _write(pa.table({f"process{i}": row for i, row in enumerate(sums)}), folder, TOTALS)
    removal.remove(folder / SEGMENTS)


def _write(table: pa.Table, folder: Path, name: str) -> None:
    # Times grow steadily: their differences compress far better than the values.
    integers = [column for column in table.column_names if table.schema.field(column).type == pa.int64()]
    with owned.replacing(folder, name) as file:
        pq.write_table(
            table,
            file,
            compression="zstd",
            use_dictionary=False,
            column_encoding=dict.fromkeys(integers, "DELTA_BINARY_PACKED"),
            write_page_checksum=True,
        )


def read_compact(folder: Path) -> "list[Process]":
    """The processes of a rank that ``compact`` wrote.

    Raises:
        RunDamaged: a file is missing, was cut off or changed.
    """
    from feedline.profiler.errors import RunDamaged

    try:
        return _processes(*(pq.read_table(folder / name, page_checksum_verification=True) for name in (EVENTS, TOTALS)))
    except (OSError, pa.ArrowException, LookupError, ValueError, TypeError, AttributeError) as error:
        raise RunDamaged(
            f"{folder / EVENTS} cannot be read ({error}): it was cut off or changed, and the run has to be recorded again"
        ) from error


def _processes(table: pa.Table, sums: pa.Table) -> "list[Process]":
    from feedline.profiler.store.read import Process

    records = np.empty(table.num_rows, RECORD_DTYPE)
    for name in RECORD_DTYPE.names or ():
        records[name] = table[name].to_numpy()
    owner = table["process"].to_numpy()
    processes = []
    split = seg.STAGES * seg.FIELDS
    for number, about in enumerate(json.loads(table.schema.metadata[PROCESSES])):
        row = sums[f"process{number}"].to_numpy()
        names = {int(key): value for key, value in about["names"].items()}
        processes.append(
            Process(
                about["header"],
                records[owner == number],
                names,
                row[:split].reshape(seg.STAGES, seg.FIELDS),
                row[split:].reshape(2, seg.BINS),
            )
        )
    return processes
