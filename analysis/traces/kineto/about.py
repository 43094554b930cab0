"""What a trace says of itself around its events: rank, groups, devices, and what its times count from."""

import json
import re
from dataclasses import dataclass, field
from typing import Any

import msgspec

from feedline.analysis.traces.kineto.salvage import LARGEST, whole
from feedline.analysis.traces.kineto.schema import NONE


@dataclass(frozen=True)
class About:
    """Attributes as those of Trace. base_ns is added to all times; origin_ns: what a trace of feedline's own writing counts from."""

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


def about(head: bytes, tail: bytes) -> About:
    """Read the object around the list of events; of one that is not valid JSON, what can be found in it."""
    text = head + (tail or b"]}")
    if not head:
        return About()
    try:
        top = msgspec.json.decode(text, type=_Top)
        found = {name: _value(bytes(getattr(top, name))) for name in ("base", "distributed", "devices", "feedline")}
        notes: list[str] = []
    except (msgspec.DecodeError, RecursionError, UnicodeDecodeError):
        found, notes = _searched(text)
    distributed = found["distributed"] if isinstance(found["distributed"], dict) else {}
    rank, world = whole(distributed.get("rank"), -1), whole(distributed.get("world_size"), -1)
    origin = found["feedline"].get("origin_ns") if isinstance(found["feedline"], dict) else None
    base = whole(found["base"], 0)
    return About(
        base_ns=base if abs(base) < 1 << 61 else 0,
        rank=rank if rank >= 0 else None,
        world_size=world if world >= 0 else None,
        groups=_groups(distributed.get("pg_config")),
        devices=_devices(found["devices"]),
        origin_ns=origin if isinstance(origin, int) and abs(origin) < 1 << 61 else None,
        notes=notes,
    )


def _searched(text: bytes) -> tuple[dict[str, Any], list[str]]:
    if len(text) <= LARGEST:
        try:
            top = json.loads(text.decode("utf-8", "replace"), strict=False)
            keys = {"base": "baseTimeNanoseconds", "distributed": "distributedInfo", "devices": "deviceProperties", "feedline": "feedline"}
            return {name: top.get(key) for name, key in keys.items()}, []
        except (ValueError, RecursionError):
            pass
    found: dict[str, Any] = dict.fromkeys(("base", "distributed", "devices", "feedline"))
    base = re.search(rb'"baseTimeNanoseconds"\s*:\s*(-?\d{1,19})', text)
    ours = re.search(rb'"origin_ns"\s*:\s*(-?\d{1,19})', text)
    rank = re.search(rb'"distributedInfo"\s*:\s*\{[^{}]*?"rank"\s*:\s*(\d{1,9})', text)
    world = re.search(rb'"distributedInfo"\s*:\s*\{[^{}]*?"world_size"\s*:\s*(\d{1,9})', text)
    found["base"] = int(base[1]) if base else None
    found["feedline"] = {"origin_ns": int(ours[1])} if ours else None
    found["distributed"] = {name: int(match[1]) for name, match in (("rank", rank), ("world_size", world)) if match}
    return found, ["the file's metadata is damaged: only its rank and time base were recovered"]


def _value(text: bytes) -> Any:
    """A value, also one that stands as text within text."""
    if not text or len(text) > LARGEST:
        return None
    try:
        value = msgspec.json.decode(text)
        return msgspec.json.decode(value) if isinstance(value, str) else value
    except (msgspec.DecodeError, RecursionError, UnicodeDecodeError):
        return None


def _groups(config: object) -> dict[str, tuple[int, ...]]:
    """Process groups by name. torch leaves the list empty for a group of all ranks (distributed_c10d, ``pg_config_info``)."""
    groups = {}
    for entry in config if isinstance(config, list) else []:
        if not isinstance(entry, dict) or entry.get("pg_name") is None:
            continue
        ranks, size = entry.get("ranks"), whole(entry.get("pg_size"), 0)
        if isinstance(ranks, list) and ranks and all(type(rank) is int for rank in ranks):
            groups[str(entry["pg_name"])] = tuple(ranks)
        elif ranks == [] and 0 < size <= 1 << 20:
            groups[str(entry["pg_name"])] = tuple(range(size))
    return groups


def _devices(properties: object) -> dict[int, str]:
    devices = {}
    for entry in properties if isinstance(properties, list) else []:
        if isinstance(entry, dict) and type(entry.get("id")) is int and isinstance(entry.get("name"), str):
            devices[entry["id"]] = entry["name"]
    return devices
