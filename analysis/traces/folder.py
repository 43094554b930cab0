"""A trace in a run folder: one Parquet file with its columns.

Its metadata has everything that they refer to. It is read as far as others rely on it: indices that
point at something, times in order and within 64 bits.
"""

import json
import os
from dataclasses import asdict, fields
from pathlib import Path
from typing import Annotated, Any, Literal

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from msgspec import Meta, defstruct, structs

from feedline.analysis.traces.trace_columns import (
    EVENT_DTYPE,
    CollectiveArgs,
    Kind,
    Shape,
    Trace,
    Track,
)
from feedline.profiler import masks
from feedline.profiler.files import owned
from feedline.profiler.files.bounded import json_of
from feedline.profiler.files.checking import MOST_RANKS, MOST_TIME_NS, Count, checked
from feedline.profiler.files.parquet import columns, table_of
from feedline.profiler.store.layout import TRACE
from feedline.profiler.store.shapes import RankNumber

_MAX_TIME = 1 << 60  # from the first event
_MOST_SPAN = 1 << 53  # ns: 104 days
_MAX_SUM = 1 << 62
_MOST_DEVICES = 1024  # each is worked on by itself
_MOST_NUMBER = 1 << 53
_Ranks = Annotated[tuple[RankNumber, ...], Meta(max_length=MOST_RANKS)]
#: Trace without its events, with types as narrow as its users need them.
_ABOUT_FIELDS: dict[str, Any] = {
    "source": str,
    "maker": Literal["kineto", "nsight", "rocprof", "xprof"],
    "rank": Count | None,
    "world_size": Count | None,
    "origin_ns": Annotated[int, Meta(gt=-MOST_TIME_NS // 2, lt=MOST_TIME_NS // 2)],
    "names": list[str],
    "tracks": list[Track],
    "shapes": list[Shape],
    "collectives": list[CollectiveArgs],
    "groups": dict[str, _Ranks],
    "devices": dict[Annotated[int, Meta(ge=-1, lt=1 << 31)], str],
    "notes": list[str],
}
_About = defstruct("About", list(_ABOUT_FIELDS.items()))
_METADATA_KEY = b"feedline.trace"  # key in the file's metadata
_ROW_GROUP = 1 << 19  # events written at a time: what the copy of their columns takes


def _about(data: Any) -> dict[str, Any]:
    """Return everything of a trace but its events.

    Raises:
        ValueError: a member is missing or of another type; the text says which.
    """
    about = structs.asdict(checked(data, _About))
    _numbers(about)
    return about


def _numbers(about: dict[str, Any]) -> None:
    """Check ranges of what the types of trace_columns.py leave open."""
    devices = {track.device for track in about["tracks"]}
    if (
        len(devices) > _MOST_DEVICES
        or min(devices, default=0) < -1
        or max(devices, default=0) >= 1 << 31
    ):
        raise ValueError(
            f"`tracks` names {len(devices):,} devices, or an impossible one: at most "
            f"{_MOST_DEVICES:,} are read"
        )
    sizes = {size for shape in about["shapes"] for sizes in shape.inputs for size in sizes}
    args = {
        number
        for collective in about["collectives"]
        for number in (
            collective.size,
            collective.sequence,
            collective.elements_in,
            collective.elements_out,
        )
    } - {None}
    for what, numbers in (("shapes", sizes), ("collectives", args)):
        if numbers and not (-_MOST_NUMBER < min(numbers) and max(numbers) < _MOST_NUMBER):
            raise ValueError(f"`{what}` contains numbers that no recording can have")
    for ranks in {collective.ranks for collective in about["collectives"] if collective.ranks}:
        checked(ranks, _Ranks)


def _check(trace: Trace) -> None:
    """See that the events are those of the trace.

    Raises:
        ValueError: the text names the column.
    """
    events = trace.events
    for name, low, high in (
        ("start", -_MAX_TIME, _MAX_TIME),
        ("wall", 0, _MAX_TIME),
        ("nbytes", -1, _MAX_SUM),
        ("name", 0, len(trace.names)),
        ("track", 0, len(trace.tracks)),
        ("shape", -1, len(trace.shapes)),
        ("collective", -1, len(trace.collectives)),
    ):
        outside = np.flatnonzero((events[name] < low) | (events[name] >= high))
        if len(outside):
            raise ValueError(f"column {name}: {events[name][outside[0]]} in row {outside[0]:,}")
    for name in ("wall", "nbytes"):
        if float(events[name].astype(float).sum()) >= _MAX_SUM:
            raise ValueError(f"column {name}: its sum does not fit into 64 bits")
    unknown = np.flatnonzero(~np.isin(events["kind"], list(Kind)))
    if len(unknown):
        raise ValueError(f"column kind: {events['kind'][unknown[0]]} in row {unknown[0]:,}")
    if (
        len(events)
        and float(events["start"].max() - events["start"].min()) + float(events["wall"].max())
        >= _MOST_SPAN
    ):
        raise ValueError("columns start, wall: the trace spans months")
    later = np.diff(events["start"])
    if (later < 0).any() or (np.diff(events["wall"])[later == 0] > 0).any():
        raise ValueError("columns start, wall: the events are not in order")


assert set(_ABOUT_FIELDS) == {field.name for field in fields(Trace)} - {"events"}


def is_trace(folder: Path) -> bool:
    """Tell whether a rank's folder holds a trace of another tool."""
    return os.path.lexists(folder / TRACE)


def check(trace: Trace) -> None:
    """See that ``read`` will read the trace once it is written.

    Raises:
        ValueError: its numbers are none that a recording can have; the text says which.
    """
    _about(json_of(_described(trace).decode("utf-8", "surrogatepass")))
    _check(trace)


def _described(trace: Trace) -> bytes:
    """Return everything of a trace but its events, as JSON."""
    about = {name: value for name, value in vars(trace).items() if name != "events"}
    for name in ("tracks", "shapes", "collectives"):
        about[name] = [asdict(value) for value in about[name]]
    about["source"], about["notes"] = (
        masks.token(trace.source),
        [masks.text(note) for note in trace.notes],
    )
    # with_stack gives files
    about["names"] = [
        masks.text(name) if "/" in name else masks.token(name) for name in trace.names
    ]
    return json.dumps(about, separators=(",", ":")).encode("utf-8", "surrogatepass")


def write(trace: Trace, folder: Path) -> None:
    """Write a trace into a rank's folder, which is made if it is missing.

    Raises:
        OSError: read-only or full; nothing is left of the file.
    """
    owned.ensure(folder)
    names = EVENT_DTYPE.names or ()
    kinds = [pa.field(name, pa.from_numpy_dtype(EVENT_DTYPE[name])) for name in names]
    schema = pa.schema(kinds, metadata={_METADATA_KEY: _described(trace)})
    with (
        owned.replacing(folder, TRACE) as file,
        pq.ParquetWriter(
            file, schema, compression="zstd", use_dictionary=False, write_page_checksum=True
        ) as parquet,
    ):
        for begin in range(0, max(len(trace.events), 1), _ROW_GROUP):
            part = trace.events[begin : begin + _ROW_GROUP]
            parquet.write_table(
                table_of({name: np.ascontiguousarray(part[name]) for name in names})
            )


def read(folder: Path) -> Trace:
    """Read the trace that ``write`` wrote.

    Raises:
        RunDamaged: the file is missing, was cut off or changed.
    """
    with columns(folder / TRACE, "ingest the trace again") as file:
        about = _about(json_of(file.metadata(_METADATA_KEY).decode("utf-8", "surrogatepass")))
        events = np.empty(file.rows, EVENT_DTYPE)
        file.into(events, {})
        trace = Trace(events=events, **about)
        _check(trace)
    return trace
