"""Read a Kineto trace of any year in bounded memory."""

import os
from typing import NoReturn

import numpy as np

from feedline.analysis.formatting import counted
from feedline.analysis.traces.columns import DEVICE_WORK, CollectiveArgs, Kind, Trace
from feedline.analysis.traces.kineto.about import About, about
from feedline.analysis.traces.kineto.fill import Filled
from feedline.analysis.traces.kineto.foreign import adapt, maker_of
from feedline.analysis.traces.kineto.inflate import Inflated
from feedline.analysis.traces.kineto.limits import DEFAULT, Limits
from feedline.analysis.traces.kineto.rows import Rows, canonical, sort
from feedline.analysis.traces.kineto.stream import Blocks
from feedline.analysis.traces.makers import READ, of_events, refusal
from feedline.profiler.errors import TraceDamaged
from feedline.profiler.message import few

_KINETO = "kineto"
_CATEGORIES = 5  # that an error names
#: Kinds of which a report has something to say.
_SAYING = (*DEVICE_WORK, Kind.RUNTIME, Kind.OPERATOR, Kind.ANNOTATION, Kind.PYTHON, Kind.SYSTEM)
_PIECE = 1 << 19  # bytes of JSON at a time: its events then stay in the processor's cache
_UNIX_NS = 10**18  # September 2001: a time before it counts from some other moment
_STRAY_NS = 60 * 10**9  # rows at 0 that lie so far before all others were never given a time


def read_kineto(path: str, limits: Limits = DEFAULT, piece: int = _PIECE, strangers: bool = True) -> Trace:
    """Read a trace of torch.profiler, of any vintage: JSON, or JSON packed with gzip whatever its name.

    Memory peaks at about 75 bytes an event and 100 MB. The result does not depend on the order of events in the file, nor on ``piece``.

    Args:
        path: of this machine, or an address for fsspec such as ``s3://bucket/trace.json.gz``.
        limits: what reading it may take.
        piece: bytes of JSON decoded at a time.
        strangers: also read a file none of whose events is of a known category, and that no other known profiler wrote.

    Returns:
        Trace whose start columns count from its first event, in Unix time if the file's clock is that; from the file's own zero otherwise.
        What was dropped or cut is said in its notes.

    Raises:
        TraceDamaged: there is no such file, it is not a trace, it holds no event, none that is known, or more than the limits.
        MissingDependency: fsspec needs a library for this address.
    """
    path = os.fspath(path)
    inflated = Inflated(path, limits, piece)
    blocks = Blocks(inflated, path)
    filled = Filled(path, limits)
    for block in blocks:
        filled.add(block)
    filled.add_pairs()
    said = about(blocks.head, blocks.tail)
    rows, stray = _timed(filled.rows)
    cut = inflated.cut or (None if blocks.whole else "its list of events is not closed")
    if not len(rows):
        where = f": it was truncated before the first ({cut})" if cut else ": was the profiler stopped before its active steps began?"
        raise TraceDamaged(f"{path} contains no event{where}")
    notes = [f"the trace is truncated ({cut}): all figures cover the {len(rows):,} events before that"] if cut else []
    notes += _counted(blocks.dropped + filled.unreadable, "left out: not readable")
    notes += _counted(stray, "left out: at time 0")
    notes += _counted(filled.negative, "counted as 0 ns long: the duration is missing or negative")
    notes += _counted(filled.alone, "left out: the begin or the end is missing")
    maker = _KINETO
    if not _known(rows):
        around = blocks.head + blocks.tail
        maker = maker_of(filled.tracks.processes) or (_KINETO if strangers else _refuse(path, rows, around, filled))
    return _trace(path, maker, rows, filled, said, notes + said.notes)


def _known(rows: Rows) -> bool:
    """Whether a row says something of the host or of a device."""
    return bool(np.isin(rows["kind"], _SAYING).any())


def _refuse(path: str, rows: Rows, around: bytes, filled: Filled) -> NoReturn:
    """Raises: TraceDamaged: with who wrote it."""
    categories = sorted(name for name in filled.kinds if name)
    found = of_events(around, categories, filled.tracks.processes.values())
    if found is not None:
        raise TraceDamaged(refusal(path, found))
    called = few([f"'{name}'" for name in categories], _CATEGORIES) if categories else "missing"
    raise TraceDamaged(f"{path} contains {counted(len(rows), 'event')}, none of a category that feedline knows (here: {called}). {READ}")


def _timed(rows: Rows) -> tuple[Rows, int]:
    """Leave out rows at 0 that were never given a time; and how many they are."""
    zero = rows["start"] == 0
    if not zero.any() or (~zero).sum() == 0 or np.abs(rows["start"][~zero]).min() <= _STRAY_NS:
        return rows, 0
    return rows[~zero], int(zero.sum())


def _counted(count: int, what: str) -> list[str]:
    return [f"{count:,} event{'s were' if count > 1 else ' was'} {what}"] if count else []


def _trace(path: str, maker: str, rows: Rows, filled: Filled, said: About, notes: list[str]) -> Trace:
    first = int(rows["start"].min()) + said.base_ns
    origin = said.origin_ns if said.origin_ns is not None else first if first >= _UNIX_NS else 0
    rows["start"] += said.base_ns - origin
    tracks = filled.track_values(rows)
    if maker != _KINETO:
        adapt(rows, tracks, filled.names.held, filled.tracks.processes)
    trace = Trace(
        source=path.rstrip("/").rsplit("/", 1)[-1],
        maker=maker,
        rank=said.rank,
        world_size=said.world_size,
        origin_ns=origin,
        events=rows,
        names=canonical(rows["name"], filled.names.held, str),
        tracks=canonical(rows["track"], tracks, lambda track: (track.device, track.process, track.thread, track.name)),
        shapes=canonical(rows["shape"], filled.shapes.held, lambda shape: (shape.inputs, shape.dtypes)),
        collectives=canonical(rows["collective"], filled.collectives.held, CollectiveArgs.order),
        groups=said.groups,
        devices=said.devices,
        notes=notes,
    )
    sort(rows)
    return trace
