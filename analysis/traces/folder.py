"""A trace in a run folder: one Parquet file in the rank's folder, its columns and in its metadata everything that they refer to."""

import json
from dataclasses import asdict
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from feedline.analysis.traces.columns import EVENT_DTYPE, CollectiveArgs, Shape, Trace, Track
from feedline.profiler import masks
from feedline.profiler.errors import RunDamaged
from feedline.profiler.files import owned
from feedline.profiler.store.layout import TRACE

ABOUT = b"feedline.trace"  # key in the file's metadata
ROW_GROUP = 1 << 19  # events written at a time: what the copy of their columns takes


def is_trace(folder: Path) -> bool:
    """Whether a rank's folder holds a trace of another tool."""
    return (folder / TRACE).exists()


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
    schema = pa.schema(kinds, metadata={ABOUT: json.dumps(about, separators=(",", ":")).encode("utf-8", "surrogatepass")})
    with (
        owned.replacing(folder, TRACE) as file,
        pq.ParquetWriter(file, schema, compression="zstd", use_dictionary=False, write_page_checksum=True) as parquet,
    ):
        for begin in range(0, max(len(trace.events), 1), ROW_GROUP):
            part = trace.events[begin : begin + ROW_GROUP]
            parquet.write_table(pa.table([pa.array(np.ascontiguousarray(part[name])) for name in names], schema=schema))


def read(folder: Path) -> Trace:
    """The trace that ``write`` wrote.

    Raises:
        RunDamaged: the file is missing, was cut off or changed.
    """
    try:
        with pq.ParquetFile(folder / TRACE, page_checksum_verification=True) as file:
            events = np.empty(file.metadata.num_rows, EVENT_DTYPE)
            done = 0
            for group in range(file.num_row_groups):
                table = file.read_row_group(group)
                for name in EVENT_DTYPE.names or ():
                    events[name][done : done + table.num_rows] = table[name].to_numpy()
                done += table.num_rows
            about = json.loads(file.schema_arrow.metadata[ABOUT].decode("utf-8", "surrogatepass"))
        return _trace(about, events)
    except (OSError, pa.ArrowException, LookupError, ValueError, TypeError, AttributeError) as error:
        raise RunDamaged(f"{folder / TRACE} cannot be read ({error}): ingest the trace again") from error


def _trace(about: dict[str, object], events: "np.ndarray[tuple[int], np.dtype[np.void]]") -> Trace:
    made = dict(about)
    made["tracks"] = [Track(**one) for one in about["tracks"]]  # type: ignore[attr-defined]
    made["shapes"] = [Shape(tuple(map(tuple, one["inputs"])), tuple(one["dtypes"])) for one in about["shapes"]]  # type: ignore[attr-defined]
    made["collectives"] = [
        CollectiveArgs(**{**one, "ranks": None if one["ranks"] is None else tuple(one["ranks"])})
        for one in about["collectives"]  # type: ignore[attr-defined]
    ]
    made["groups"] = {name: tuple(ranks) for name, ranks in about["groups"].items()}  # type: ignore[attr-defined]
    made["devices"] = {int(number): name for number, name in about["devices"].items()}  # type: ignore[attr-defined]
    return Trace(events=events, **made)  # type: ignore[arg-type]
