"""A trace in a run folder: one Parquet file in the rank's folder, its columns and in its metadata everything that they refer to."""

import json
import os
from dataclasses import asdict
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from feedline.analysis.traces import trusted
from feedline.analysis.traces.columns import EVENT_DTYPE, Trace
from feedline.profiler import masks
from feedline.profiler.files import owned
from feedline.profiler.files.bounded import json_of
from feedline.profiler.files.parquet import columns, table_of
from feedline.profiler.store.layout import TRACE

_ABOUT = b"feedline.trace"  # key in the file's metadata
_ROW_GROUP = 1 << 19  # events written at a time: what the copy of their columns takes


def is_trace(folder: Path) -> bool:
    """Whether a rank's folder holds a trace of another tool."""
    return os.path.lexists(folder / TRACE)


def write(trace: Trace, folder: Path) -> None:
    """Write a trace into a rank's folder, which is made if it is missing.

    Raises:
        OSError: read-only or full; nothing is left of the file.
    """
    owned.ensure(folder)
    about = {name: value for name, value in vars(trace).items() if name != "events"}
    for name in ("tracks", "shapes", "collectives"):
        about[name] = [asdict(one) for one in about[name]]
    about["source"], about["notes"] = masks.token(trace.source), [masks.text(note) for note in trace.notes]
    about["names"] = [masks.text(name) if "/" in name else masks.token(name) for name in trace.names]  # with_stack gives files
    names = EVENT_DTYPE.names or ()
    kinds = [pa.field(name, pa.from_numpy_dtype(EVENT_DTYPE[name])) for name in names]
    schema = pa.schema(kinds, metadata={_ABOUT: json.dumps(about, separators=(",", ":")).encode("utf-8", "surrogatepass")})
    with (
        owned.replacing(folder, TRACE) as file,
        pq.ParquetWriter(file, schema, compression="zstd", use_dictionary=False, write_page_checksum=True) as parquet,
    ):
        for begin in range(0, max(len(trace.events), 1), _ROW_GROUP):
            part = trace.events[begin : begin + _ROW_GROUP]
            parquet.write_table(table_of({name: np.ascontiguousarray(part[name]) for name in names}))


def read(folder: Path) -> Trace:
    """The trace that ``write`` wrote.

    Raises:
        RunDamaged: the file is missing, was cut off or changed.
    """
    with columns(folder / TRACE, "ingest the trace again") as file:
        about = trusted.about(json_of(file.metadata(_ABOUT).decode("utf-8", "surrogatepass")))
        events = np.empty(file.rows, EVENT_DTYPE)
        file.into(events, {})
        made = Trace(events=events, **about)
        trusted.check(made)
    return made
