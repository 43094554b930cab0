"""Read a Kineto trace of any year in bounded memory."""

import json
import os
import re
from dataclasses import dataclass, field
from typing import Any, NoReturn

import msgspec
import numpy as np

from feedline.analysis.text.formatting import counted
from feedline.analysis.traces.kineto.event_blocks import NONE
from feedline.analysis.traces.kineto.fill import Filled
from feedline.analysis.traces.kineto.stream import MAX_OBJECT_TEXT, Blocks, Inflated, as_int
from feedline.analysis.traces.makers import (
    READ,
    adapt_events,
    maker_of,
    maker_of_events,
    refusal_of,
)
from feedline.analysis.traces.trace_columns import (
    DEFAULT,
    DEVICE_WORK,
    CollectiveArgs,
    Kind,
    Rows,
    Trace,
    TraceLimits,
    canonical,
    sort,
)
from feedline.profiler import masks
from feedline.profiler.errors import TraceDamaged
from feedline.profiler.message import few

_KINETO = "kineto"
_MAX_CATEGORIES = 5  # that an error names
#: Kinds of which a report has something to say.
_SAYING = (*DEVICE_WORK, Kind.RUNTIME, Kind.OPERATOR, Kind.ANNOTATION, Kind.PYTHON, Kind.SYSTEM)
_PIECE_BYTES = 1 << 19  # bytes of JSON at a time: its events then stay in the processor's cache
_UNIX_NS = 10**18  # September 2001: a time before it counts from some other moment
_STRAY_NS = 60 * 10**9  # rows at 0 that lie so far before all others were never given a time
_APART_NS = 1 << 52  # 52 days from most rows: a time of another clock, not a moment of the trace


@dataclass(frozen=True)
class _About:
    """Attributes as those of Trace.

    base_ns is added to all times. origin_ns: what a trace of feedline's own writing counts from.
    """

    base_ns: int = 0
    rank: int | None = None
    world_size: int | None = None
    groups: dict[str, tuple[int, ...]] = field(default_factory=dict)
    devices: dict[int, str] = field(default_factory=dict)
    origin_ns: int | None = None
    notes: list[str] = field(default_factory=list)


class _Top(msgspec.Struct):
    """The keys of the object that are of use. Others are skipped, whatever they hold."""

    base: msgspec.Raw = msgspec.field(default=NONE, name="baseTimeNanoseconds")
    distributed: msgspec.Raw = msgspec.field(default=NONE, name="distributedInfo")
    devices: msgspec.Raw = msgspec.field(default=NONE, name="deviceProperties")
    feedline: msgspec.Raw = NONE


def _about(head: bytes, tail: bytes) -> _About:
    """Read the object around the list of events.

    Of one that is not valid JSON, what can be found in it.
    """
    text = head + (tail or b"]}")
    if not head:
        return _About()
    try:
        top = msgspec.json.decode(text, type=_Top)
        values = {
            name: _value(bytes(getattr(top, name)))
            for name in ("base", "distributed", "devices", "feedline")
        }
        notes: list[str] = []
    except (msgspec.DecodeError, RecursionError, UnicodeDecodeError):
        values, notes = _searched(text)
    distributed = values["distributed"] if isinstance(values["distributed"], dict) else {}
    rank, world = as_int(distributed.get("rank"), -1), as_int(distributed.get("world_size"), -1)
    origin = values["feedline"].get("origin_ns") if isinstance(values["feedline"], dict) else None
    base = as_int(values["base"], 0)
    return _About(
        base_ns=base if abs(base) < 1 << 61 else 0,
        rank=rank if rank >= 0 else None,
        world_size=world if world >= 0 else None,
        groups=_groups(distributed.get("pg_config")),
        devices=_devices(values["devices"]),
        origin_ns=origin if isinstance(origin, int) and abs(origin) < 1 << 61 else None,
        notes=notes,
    )


def _searched(text: bytes) -> tuple[dict[str, Any], list[str]]:
    if len(text) <= MAX_OBJECT_TEXT:
        try:
            top = json.loads(text.decode("utf-8", "replace"), strict=False)
            keys = {
                "base": "baseTimeNanoseconds",
                "distributed": "distributedInfo",
                "devices": "deviceProperties",
                "feedline": "feedline",
            }
            return {name: top.get(key) for name, key in keys.items()}, []
        except (ValueError, RecursionError):
            pass
    values: dict[str, Any] = dict.fromkeys(("base", "distributed", "devices", "feedline"))
    base = re.search(rb'"baseTimeNanoseconds"\s*:\s*(-?\d{1,19})', text)
    ours = re.search(rb'"origin_ns"\s*:\s*(-?\d{1,19})', text)
    rank = re.search(rb'"distributedInfo"\s*:\s*\{[^{}]*?"rank"\s*:\s*(\d{1,9})', text)
    world = re.search(rb'"distributedInfo"\s*:\s*\{[^{}]*?"world_size"\s*:\s*(\d{1,9})', text)
    values["base"] = int(base[1]) if base else None
    values["feedline"] = {"origin_ns": int(ours[1])} if ours else None
    values["distributed"] = {
        name: int(match[1]) for name, match in (("rank", rank), ("world_size", world)) if match
    }
    return values, ["the file's metadata is damaged: only its rank and time base were recovered"]


def _value(text: bytes) -> Any:
    """Return a value, also one that stands as text within text."""
    if not text or len(text) > MAX_OBJECT_TEXT:
        return None
    try:
        value = msgspec.json.decode(text)
        return msgspec.json.decode(value) if isinstance(value, str) else value
    except (msgspec.DecodeError, RecursionError, UnicodeDecodeError):
        return None


def _groups(config: object) -> dict[str, tuple[int, ...]]:
    """Return process groups by name.

    torch leaves the list empty for a group of all ranks (distributed_c10d, ``pg_config_info``).
    """
    groups = {}
    for entry in config if isinstance(config, list) else []:
        if not isinstance(entry, dict) or entry.get("pg_name") is None:
            continue
        ranks, size = entry.get("ranks"), as_int(entry.get("pg_size"), 0)
        if isinstance(ranks, list) and ranks and all(type(rank) is int for rank in ranks):
            groups[str(entry["pg_name"])] = tuple(ranks)
        elif ranks == [] and 0 < size <= 1 << 20:
            groups[str(entry["pg_name"])] = tuple(range(size))
    return groups


def _devices(properties: object) -> dict[int, str]:
    devices = {}
    for entry in properties if isinstance(properties, list) else []:
        if (
            isinstance(entry, dict)
            and type(entry.get("id")) is int
            and isinstance(entry.get("name"), str)
        ):
            devices[entry["id"]] = entry["name"]
    return devices


def read_kineto(
    path: str, limits: TraceLimits = DEFAULT, piece: int = _PIECE_BYTES, strangers: bool = True
) -> Trace:
    """Read a trace of torch.profiler, of any vintage.

    It is JSON, or JSON packed with gzip whatever its name. Memory peaks at about 75 bytes an event
    and 100 MB. The result does not depend on the order of events in the file, nor on ``piece``.

    Args:
        path: of this machine, or an address for fsspec such as ``s3://bucket/trace.json.gz``.
        limits: what reading it may take.
        piece: bytes of JSON decoded at a time.
        strangers: also read a file none of whose events is of a known category, and that no other
            known profiler wrote.

    Returns:
        Trace whose start columns count from its first event, in Unix time if the file's clock is
        that; from the file's own zero otherwise. What was dropped or cut is said in its notes.

    Raises:
        TraceDamaged: there is no such file, it is not a trace, it holds no event, none that is
            known, or more than the limits.
        MissingDependency: fsspec needs a library for this address.
    """
    path = os.fspath(path)
    inflated = Inflated(path, limits, piece)
    blocks = Blocks(inflated, path)
    filled = Filled(path, limits)
    for block in blocks:
        filled.add(block)
    filled.add_pairs()
    about = _about(blocks.head, blocks.tail)
    rows, stray = _timed(filled.rows)
    rows, apart = _on_one_clock(rows)
    cut = inflated.cut or (None if blocks.whole else "its list of events is not closed")
    if not len(rows):
        where = (
            f": it was truncated before the first ({cut})"
            if cut
            else ": was the profiler stopped before its active steps began?"
        )
        raise TraceDamaged(f"{path} contains no event{where}")
    notes = (
        [f"the trace is truncated ({cut}): all figures cover the {len(rows):,} events before that"]
        if cut
        else []
    )
    notes += _counted(blocks.dropped + filled.unreadable, "left out: not readable")
    notes += _counted(stray, "left out: at time 0")
    notes += _counted(apart, "left out: on another clock")
    notes += _counted(filled.negative, "counted as 0 ns long: the duration is missing or negative")
    notes += _counted(filled.alone, "left out: the begin or the end is missing")
    maker = _KINETO
    if not _known(rows):
        around = blocks.head + blocks.tail
        maker = maker_of(filled.tracks.processes) or (
            _KINETO if strangers else _refuse(path, rows, around, filled)
        )
    return _trace(path, maker, rows, filled, about, notes + about.notes)


def _known(rows: Rows) -> bool:
    """Tell whether a row says something of the host or of a device."""
    return bool(np.isin(rows["kind"], _SAYING).any())


def _refuse(path: str, rows: Rows, around: bytes, filled: Filled) -> NoReturn:
    """Refuse a file, and say who wrote it.

    Raises TraceDamaged, always.
    """
    categories = sorted(name for name in filled.kinds if name)
    maker = maker_of_events(around, categories, filled.tracks.processes.values())
    if maker is not None:
        raise TraceDamaged(refusal_of(path, maker))
    called = few([f"'{name}'" for name in categories], _MAX_CATEGORIES) if categories else "missing"
    raise TraceDamaged(
        f"{path} contains {counted(len(rows), 'event')}, none of a category that feedline knows "
        f"(here: {called}). {READ}"
    )


def _timed(rows: Rows) -> tuple[Rows, int]:
    """Leave out rows at 0 that were never given a time; and how many they are."""
    zero = rows["start"] == 0
    if not zero.any() or (~zero).sum() == 0 or np.abs(rows["start"][~zero]).min() <= _STRAY_NS:
        return rows, 0
    return rows[~zero], int(zero.sum())


def _on_one_clock(rows: Rows) -> tuple[Rows, int]:
    """Leave out rows whose time is of another clock than that of most; and how many they are."""
    start = rows["start"]
    if not len(rows) or float(start.max()) - float(start.min()) <= _APART_NS:
        return rows, 0
    middle = len(rows) // 2
    apart = np.abs(start.astype(float) - float(np.partition(start, middle)[middle])) > _APART_NS
    return rows[~apart], int(apart.sum())


def _counted(count: int, what: str) -> list[str]:
    return [f"{count:,} event{'s were' if count > 1 else ' was'} {what}"] if count else []


def _trace(
    path: str, maker: str, rows: Rows, filled: Filled, about: _About, notes: list[str]
) -> Trace:
    first = int(rows["start"].min()) + about.base_ns
    origin = about.origin_ns if about.origin_ns is not None else first if first >= _UNIX_NS else 0
    rows["start"] += about.base_ns - origin
    tracks = filled.track_values(rows)
    if maker != _KINETO:
        adapt_events(rows, tracks, filled.names.held, filled.tracks.processes)
    trace = Trace(
        source=masks.file_name(path),
        maker=maker,
        rank=about.rank,
        world_size=about.world_size,
        origin_ns=origin,
        events=rows,
        names=canonical(rows["name"], filled.names.held, str),
        tracks=canonical(
            rows["track"],
            tracks,
            lambda track: (track.device, track.process, track.thread, track.name),
        ),
        shapes=canonical(
            rows["shape"], filled.shapes.held, lambda shape: (shape.inputs, shape.dtypes)
        ),
        collectives=canonical(rows["collective"], filled.collectives.held, CollectiveArgs.order),
        groups=about.groups,
        devices=about.devices,
        notes=notes,
    )
    sort(rows)
    return trace
