"""A trace out of a run folder, as far as others rely on it: indices that point at something, times in order and within 64 bits."""

from dataclasses import fields
from typing import Annotated, Any, Literal

import numpy as np
from msgspec import Meta, defstruct, structs

from feedline.analysis.traces.columns import CollectiveArgs, Kind, Shape, Trace, Track
from feedline.profiler.files.checking import MOST_RANKS, MOST_TIME_NS, Count, RankNumber, checked

_MOST_NS = 1 << 60  # from the first event
_MOST_SPAN = 1 << 53  # ns: 104 days
_MOST_SUM = 1 << 62
_MOST_DEVICES = 1024  # each is worked on by itself
_MOST_NUMBER = 1 << 53
_Ranks = Annotated[tuple[RankNumber, ...], Meta(max_length=MOST_RANKS)]
#: Trace without its events, with types as narrow as its users need them.
_ABOUT: dict[str, Any] = {
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
_About = defstruct("About", list(_ABOUT.items()))


def about(data: Any) -> dict[str, Any]:
    """Everything of a trace but its events.

    Raises:
        ValueError: a member is missing or of another type; the text says which.
    """
    found = structs.asdict(checked(data, _About))
    _numbers(found)
    return found


def _numbers(found: dict[str, Any]) -> None:
    """Ranges of what the types of columns.py leave open."""
    devices = {track.device for track in found["tracks"]}
    if len(devices) > _MOST_DEVICES or min(devices, default=0) < -1 or max(devices, default=0) >= 1 << 31:
        raise ValueError(f"`tracks` names {len(devices):,} devices, or an impossible one: at most {_MOST_DEVICES:,} are read")
    sizes = {size for shape in found["shapes"] for sizes in shape.inputs for size in sizes}
    args = {number for one in found["collectives"] for number in (one.size, one.sequence, one.elements_in, one.elements_out)} - {None}
    for what, numbers in (("shapes", sizes), ("collectives", args)):
        if numbers and not (-_MOST_NUMBER < min(numbers) and max(numbers) < _MOST_NUMBER):
            raise ValueError(f"`{what}` contains numbers that no recording can have")
    for ranks in {one.ranks for one in found["collectives"] if one.ranks}:
        checked(ranks, _Ranks)


def check(trace: Trace) -> None:
    """See that the events are those of the trace.

    Raises:
        ValueError: the text names the column.
    """
    events = trace.events
    for name, low, high in (
        ("start", -_MOST_NS, _MOST_NS),
        ("wall", 0, _MOST_NS),
        ("nbytes", -1, _MOST_SUM),
        ("name", 0, len(trace.names)),
        ("track", 0, len(trace.tracks)),
        ("shape", -1, len(trace.shapes)),
        ("collective", -1, len(trace.collectives)),
    ):
        outside = np.flatnonzero((events[name] < low) | (events[name] >= high))
        if len(outside):
            raise ValueError(f"column {name}: {events[name][outside[0]]} in row {outside[0]:,}")
    for name in ("wall", "nbytes"):
        if float(events[name].astype(float).sum()) >= _MOST_SUM:
            raise ValueError(f"column {name}: its sum does not fit into 64 bits")
    unknown = np.flatnonzero(~np.isin(events["kind"], list(Kind)))
    if len(unknown):
        raise ValueError(f"column kind: {events['kind'][unknown[0]]} in row {unknown[0]:,}")
    if len(events) and float(events["start"].max() - events["start"].min()) + float(events["wall"].max()) >= _MOST_SPAN:
        raise ValueError("columns start, wall: the trace spans months")
    later = np.diff(events["start"])
    if (later < 0).any() or (np.diff(events["wall"])[later == 0] > 0).any():
        raise ValueError("columns start, wall: the events are not in order")


assert set(_ABOUT) == {field.name for field in fields(Trace)} - {"events"}
