"""Blocks of events become rows of columns."""

from collections.abc import Iterable, Sequence
from operator import attrgetter
from typing import Any

import numpy as np
import numpy.typing as npt

from feedline.analysis.traces.columns import CollectiveArgs, Kind, Track
from feedline.analysis.traces.kineto.decode import Block
from feedline.analysis.traces.kineto.limits import Limits
from feedline.analysis.traces.kineto.rows import Growing, Rows
from feedline.analysis.traces.kineto.schema import NONE, AnySpan, Args, Begin, End, kind_of
from feedline.analysis.traces.kineto.tables import LONGEST_SHAPE, Budget, Numbered, Tracks, collective_of, is_stream, shape_of
from feedline.analysis.traces.kineto.times import UNREADABLE
from feedline.profiler.errors import TraceDamaged

Mark = tuple[int, Begin | End]


def _paired(marks: Sequence[Mark]) -> tuple[Block, int]:
    """Join each end with the last begin of its thread that is open; and how many have no partner.

    Args:
        marks: (ns, event) in the order of the file, which decides between marks of one moment.
    """
    open_: dict[tuple[str, str], list[tuple[int, Begin]]] = {}
    spans: list[tuple[AnySpan, int, int]] = []
    alone = 0
    for at, mark in sorted(marks, key=lambda mark: mark[0]):
        stack = open_.setdefault((str(mark.pid), str(mark.tid)), [])
        if at == UNREADABLE:
            alone += 1
        elif isinstance(mark, Begin):
            stack.append((at, mark))
        elif stack:
            begin, event = stack.pop()
            spans.append((event, begin, at - begin))
        else:
            alone += 1
    alone += sum(map(len, open_.values()))
    start, wall = (np.array([span[field] for span in spans], np.int64) for field in (1, 2))
    return Block([span[0] for span in spans], start, wall, [], np.empty(0, np.int64), []), alone


_ON_DEVICE = np.zeros(256, bool)
_ON_DEVICE[[Kind.KERNEL, Kind.COPY, Kind.SET, Kind.DEVICE_ANNOTATION, Kind.SYNC]] = True
_HAS_BYTES = np.zeros(256, bool)
_HAS_BYTES[[Kind.COPY, Kind.SET]] = True
_SYNC = int(Kind.SYNC)
_name, _category, _place = attrgetter("name"), attrgetter("cat"), attrgetter("pid", "tid")
_args, _correlation = attrgetter("args"), attrgetter("correlation")


class Filled:
    """Rows of all blocks so far, and what their numbers mean.

    Attributes:
        rows: start counts from the file's zero; tracks of streams have negative numbers until ``track_values`` is asked.
        unreadable: events without a time. negative: events whose length is missing, no number, or negative: 0 in rows.
        alone: begins and ends without a partner.

    Raises:
        TraceDamaged: more events or text than the limits.
    """

    def __init__(self, path: str, limits: Limits) -> None:
        self.path, self.limits = path, limits
        budget = Budget(path, limits.text_bytes)
        self.names: Numbered[str] = Numbered(budget)
        self.kinds = _Kinds()
        self.tracks = Tracks(budget)
        self.shapes: Numbered[bytes] = Numbered(budget, shape_of)
        self.collectives: Numbered[CollectiveArgs] = Numbered(budget)
        self.unreadable = self.negative = self.alone = 0
        self._growing = Growing()
        self._marks: list[Mark] = []

    @property
    def rows(self) -> Rows:
        return self._growing.rows

    def add(self, block: Block) -> None:
        """Take the events of a block."""
        for label in block.labels:
            if label.name == "thread_name":
                self.tracks.label(label.pid, label.tid, label.args)
            elif label.name == "process_name":
                self.tracks.process(label.pid, label.args)
        self._marks += zip(map(int, block.at), block.marks)
        spans, start, wall = block.spans, block.start, block.wall
        timeless = start == UNREADABLE
        if timeless.any():
            kept = np.flatnonzero(~timeless)
            self.unreadable += len(spans) - len(kept)
            spans, start, wall = [spans[number] for number in kept.tolist()], start[kept], wall[kept]
        if len(self.rows) + len(self._marks) + len(spans) > self.limits.events:
            raise TraceDamaged(f"{self.path} contains more than {self.limits.events:,} events: raise --max-events if memory allows")
        wrong = wall < 0
        self.negative += int(wrong.sum())
        rows = self._growing.more(len(spans))
        rows["start"], rows["wall"] = start, np.where(wrong, 0, wall)
        self._fill(rows, spans)

    def add_pairs(self) -> None:
        """Take the events whose begin and end stood apart, once all blocks are there."""
        if self._marks:
            marks, self._marks = self._marks, []
            block, self.alone = _paired(marks)
            self.add(block)

    def track_values(self, rows: Rows) -> list[Track]:
        """What numbers of tracks mean, once those of streams in these rows have been moved behind those of hosts."""
        column = rows["track"]
        streams = column < 0
        column[streams] = len(self.tracks.hosts) - 1 - column[streams]
        return self.tracks.found()

    def _fill(self, rows: Rows, spans: Sequence[AnySpan]) -> None:
        count = len(spans)
        args = list(map(_args, spans))
        kinds = _column(map(self.kinds.__getitem__, map(_category, spans)), "u1", count)
        rows["kind"] = kinds
        rows["name"] = _column(map(self.names.__getitem__, map(_name, spans)), "i4", count)
        rows["track"] = self._tracks(kinds, spans, args)
        rows["correlation"] = _column(map(_correlation, args), "i8", count)
        for column in ("nbytes", "shape", "collective"):
            rows[column] = -1
        sized = np.flatnonzero(_HAS_BYTES[kinds])
        rows["nbytes"][sized] = [args[number].bytes for number in sized.tolist()]
        shaped = [number for number, given in enumerate(args) if given.dims is not NONE]
        keys = [b"|".join((given.dims, given.dtypes)) for given in map(args.__getitem__, shaped)]
        rows["shape"][shaped] = [self.shapes[key] if len(key) < LONGEST_SHAPE else -1 for key in keys]
        together = [number for number, given in enumerate(args) if given.operation is not None or given.group is not None]
        rows["collective"][together] = [self._collective(args[number]) for number in together]

    def _tracks(self, kinds: npt.NDArray[np.uint8], spans: Sequence[AnySpan], args: Sequence[Args]) -> npt.NDArray[np.int32]:
        tracks = _column(map(self.tracks.hosts.__getitem__, map(_place, spans)), "i4", len(spans))
        for number in np.flatnonzero(_ON_DEVICE[kinds]).tolist():
            event, given = spans[number], args[number]
            if kinds[number] != _SYNC or is_stream(given):
                tracks[number] = -1 - self.tracks.streams[event.pid, event.tid, given.device, given.stream]
        return tracks

    def _collective(self, args: Args) -> int:
        said = collective_of(args)
        return self.collectives[said] if said != CollectiveArgs() else -1


class _Kinds(dict[str, int]):
    """Kinds by category, as files spell them."""

    def __missing__(self, category: str) -> int:
        self[category] = kind = int(kind_of(category))
        return kind


def _column(values: Iterable[Any], dtype: str, count: int) -> npt.NDArray[Any]:
    return np.fromiter(values, dtype, count)
