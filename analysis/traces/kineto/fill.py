"""Blocks of events become rows of columns; each name, track, shape and collective is held once."""

from collections.abc import Callable, Iterable, Sequence
from operator import attrgetter
from typing import Any, Generic, TypeVar

import msgspec
import numpy as np
import numpy.typing as npt

from feedline.analysis.traces.kineto.event_blocks import (
    NONE,
    UNREADABLE,
    AnySpan,
    Args,
    Begin,
    Block,
    End,
)
from feedline.analysis.traces.kineto.stream import as_int
from feedline.analysis.traces.trace_columns import (
    EVENT_DTYPE,
    CollectiveArgs,
    Kind,
    Rows,
    Shape,
    TraceLimits,
    Track,
)
from feedline.profiler.errors import TraceDamaged

#: Names of libkineto's ActivityType (libkineto/include/ActivityType.h, src/ActivityType.cpp), those
#: of its first releases (2021), and those of builds for other devices.
_KIND_OF_CATEGORY = {
    "kernel": Kind.KERNEL,
    "concurrent_kernel": Kind.KERNEL,
    "collective_comm": Kind.KERNEL,
    "gpu_memcpy": Kind.COPY,
    "memcpy": Kind.COPY,
    "gpu_memset": Kind.SET,
    "memset": Kind.SET,
    "runtime": Kind.RUNTIME,
    "cuda_runtime": Kind.RUNTIME,
    "cuda_driver": Kind.RUNTIME,
    "hip_runtime": Kind.RUNTIME,
    "hip_driver": Kind.RUNTIME,
    "hip_api": Kind.RUNTIME,
    "glow_runtime": Kind.RUNTIME,
    "mtia_runtime": Kind.RUNTIME,
    "xpu_runtime": Kind.RUNTIME,
    "xpu_driver": Kind.RUNTIME,
    "privateuse1_runtime": Kind.RUNTIME,
    "privateuse1_driver": Kind.RUNTIME,
    "cpu_op": Kind.OPERATOR,
    "operator": Kind.OPERATOR,
    "user_annotation": Kind.ANNOTATION,
    "gpu_user_annotation": Kind.DEVICE_ANNOTATION,
    "python_function": Kind.PYTHON,
    "cuda_sync": Kind.SYNC,
    "hip_sync": Kind.SYNC,
    "xpu_sync": Kind.SYNC,
    "overhead": Kind.OVERHEAD,
    "system": Kind.SYSTEM,  # trace_columns.py's own: Kineto records none
}

_Key = TypeVar("_Key")
_LONGEST_SHAPE = 1 << 16  # bytes of text; a list of a thousand tensors has half of it
_NO_STREAM = (-1, (1 << 32) - 1)  # CUPTI_SYNCHRONIZATION_INVALID_VALUE, as libkineto writes it
_Mark = tuple[int, Begin | End]
_ON_DEVICE = np.zeros(256, bool)
_ON_DEVICE[[Kind.KERNEL, Kind.COPY, Kind.SET, Kind.DEVICE_ANNOTATION, Kind.SYNC]] = True
_HAS_BYTES = np.zeros(256, bool)
_HAS_BYTES[[Kind.COPY, Kind.SET]] = True
_SYNC = int(Kind.SYNC)
_name, _category, _place = attrgetter("name"), attrgetter("cat"), attrgetter("pid", "tid")
_args, _correlation = attrgetter("args"), attrgetter("correlation")


class _Growing:
    """An array that grows in place: it is never held twice, as joining parts would."""

    def __init__(self) -> None:
        self.rows: Rows = np.empty(0, EVENT_DTYPE)

    def more(self, count: int) -> Rows:
        """Return new rows, to be filled before the next call."""
        before = len(self.rows)
        # realloc, which moves pages and not bytes on Linux
        self.rows.resize(before + count, refcheck=False)
        return self.rows[before:]


class _Budget:
    """Bytes of text that may still be held."""

    def __init__(self, path: str, size: int) -> None:
        self.path, self.left = path, size

    def take(self, size: int) -> None:
        """Take as much memory.

        Raises TraceDamaged: that is too much.
        """
        self.left -= size
        if self.left < 0:
            raise TraceDamaged(
                f"{self.path} has more names and arguments than allowed: raise --max-events if it "
                f"is a trace"
            )


class _NumberedValues(dict[_Key, int], Generic[_Key]):
    """Numbers values as they are asked for: ``numbered[value]``.

    ``held[number]`` is what ``meaning`` makes of it.
    """

    def __init__(self, budget: _Budget, meaning: Callable[[_Key], Any] = lambda key: key) -> None:
        super().__init__()
        self.budget, self.meaning, self.held = budget, meaning, list[Any]()

    def __missing__(self, key: _Key) -> int:
        self.budget.take(100 + (len(key) if isinstance(key, (str, bytes)) else 8 * len(repr(key))))
        self[key] = number = len(self.held)
        self.held.append(self.meaning(key))
        return number


class _Tracks:
    """Tracks by what events have of them, and the names that the file gives threads.

    Attributes:
        processes: pid -> name that the file gives it.
    """

    def __init__(self, budget: _Budget) -> None:
        self.budget = budget
        self.hosts: _NumberedValues[tuple[Any, ...]] = _NumberedValues(budget)
        self.streams: _NumberedValues[tuple[Any, ...]] = _NumberedValues(budget)
        self.processes: dict[str, str] = {}
        self._names: dict[tuple[str, str, int | None], str] = {}

    def label(self, pid: object, tid: object, args: Args) -> None:
        """Take the name of a thread.

        Of two names the greater one, as the order of a file means nothing.
        """
        if args.name is not None:
            key = (str(pid), str(tid), args.device if isinstance(args.device, int) else None)
            self.budget.take(200 + len(args.name))
            self._names[key] = max(self._names.get(key, ""), args.name)

    def process(self, pid: object, args: Args) -> None:
        """Take the name of a process, as ``label`` does of a thread."""
        if args.name is not None:
            self.budget.take(200 + len(args.name))
            self.processes[str(pid)] = max(self.processes.get(str(pid), ""), args.name)

    def found(self) -> list[Track]:
        """Return all tracks: those of hosts, then those of streams."""
        hosts = [
            Track(str(pid), str(tid), -1, self._name(pid, tid, None)) for pid, tid in self.hosts
        ]
        streams = []
        for pid, tid, device, stream in self.streams:
            number = _device_of(pid, device)
            streams.append(
                Track(str(pid), _stream_of(tid, stream), number, self._name(pid, tid, number))
            )
        return hosts + streams

    def _name(self, pid: object, tid: object, device: int | None) -> str:
        place = str(pid), str(tid)
        return self._names.get((*place, device), self._names.get((*place, None), ""))


def _is_stream(args: Args) -> bool:
    """Tell whether it is a stream that waits in a synchronization, and not a thread of the host."""
    return (
        args.device is not None and isinstance(args.stream, int) and args.stream not in _NO_STREAM
    )


def _device_of(pid: object, device: object) -> int:
    """Return the device of an event.

    Its arguments say it, else its process, which is the device's number on streams.
    """
    for value in (device, pid):
        number = as_int(value, -1)
        if number >= 0:
            return number
    return 0


def _stream_of(tid: object, stream: object) -> str:
    """Return the number of a stream, as text.

    The arguments say it, else its thread, which was called "stream 7" in 2021.
    """
    number = as_int(stream, -1) if stream is not None else -1
    return str(number) if number >= 0 else str(tid).removeprefix("stream ")


def _shape_of(key: bytes) -> Shape:
    """Return the sizes and types of inputs, as the texts of both lists with a bar between them.

    A list of tensors stands as that many inputs of its type.
    """
    sizes, dtypes = (_list(text) for text in key.split(b"|", 1))
    inputs: list[tuple[int, ...]] = []
    types: list[str] = []
    for number, size in enumerate(sizes):
        several = (
            size
            if isinstance(size, list) and size and all(isinstance(part, list) for part in size)
            else [size]
        )
        inputs += [_sizes(part) for part in several]
        types += [str(dtypes[number])] * len(several) if number < len(dtypes) else []
    types += map(str, dtypes[len(sizes) :])
    return Shape(tuple(inputs), tuple(types))


def _collective_of(args: Args) -> CollectiveArgs:
    """Return what a kernel or a call of record_param_comms says of its collective."""
    return CollectiveArgs(
        operation=_named(args.operation),
        group=_named(args.group),
        ranks=_ranks(args),
        size=_counted(args.size),
        sequence=_counted(args.sequence),
        elements_in=_counted(args.elements_in),
        elements_out=_counted(args.elements_out),
        dtype=_named(args.dtype),
    )


def _ranks(args: Args) -> tuple[int, ...] | None:
    """Return ranks of a group.

    Above 30, libkineto leaves out those in the middle, and newer ones say how the list goes on.
    """
    ranks = _list(bytes(args.ranks)) if args.ranks is not NONE else []
    if isinstance(ranks, str):
        ranks = _list(ranks.encode())
    if ranks and all(isinstance(rank, int) for rank in ranks):
        return tuple(ranks)
    first, stride, size = (as_int(value, -1) for value in (args.first, args.stride, args.size))
    if ranks == "..." and first >= 0 and stride > 0 and 0 < size <= 1 << 20:
        return tuple(range(first, first + stride * size, stride))
    return None


def _list(text: bytes) -> Any:
    if not text or len(text) > _LONGEST_SHAPE:
        return []
    try:
        return msgspec.json.decode(text, type=list[Any] | str)
    except (msgspec.DecodeError, RecursionError, UnicodeDecodeError):
        return "..."


def _sizes(sizes: object) -> tuple[int, ...]:
    return (
        tuple(sizes) if isinstance(sizes, list) and all(type(size) is int for size in sizes) else ()
    )


def _named(value: object) -> str | None:
    return None if value is None or value == "" else str(value)


def _counted(value: object) -> int | None:
    number = as_int(value, -1) if value is not None else -1
    return number if number >= 0 else None


def _paired(marks: Sequence[_Mark]) -> tuple[Block, int]:
    """Join each end with the last begin of its thread that is open.

    Also count those that have no partner.

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


class Filled:
    """Rows of all blocks so far, and what their numbers mean.

    Attributes:
        rows: start counts from the file's zero; tracks of streams have negative numbers until
            ``track_values`` is asked.
        unreadable: events without a time.
        negative: events whose length is missing, no number, or negative: 0 in rows.
        alone: begins and ends without a partner.

    Raises:
        TraceDamaged: more events or text than the limits.
    """

    def __init__(self, path: str, limits: TraceLimits) -> None:
        self.path, self.limits = path, limits
        budget = _Budget(path, limits.text_bytes)
        self.names: _NumberedValues[str] = _NumberedValues(budget)
        self.kinds = _Kinds()
        self.tracks = _Tracks(budget)
        self.shapes: _NumberedValues[bytes] = _NumberedValues(budget, _shape_of)
        self.collectives: _NumberedValues[CollectiveArgs] = _NumberedValues(budget)
        self.unreadable = self.negative = self.alone = 0
        self._growing = _Growing()
        self._marks: list[_Mark] = []

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
            spans = [spans[number] for number in kept.tolist()]
            start = start[kept]
            wall = wall[kept]
        if len(self.rows) + len(self._marks) + len(spans) > self.limits.events:
            raise TraceDamaged(
                f"{self.path} contains more than {self.limits.events:,} events: raise "
                f"--max-events if memory allows"
            )
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
        """Return what numbers of tracks mean.

        Those of streams in these rows have been moved behind those of hosts.
        """
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
        rows["shape"][shaped] = [
            self.shapes[key] if len(key) < _LONGEST_SHAPE else -1 for key in keys
        ]
        together = [
            number
            for number, given in enumerate(args)
            if given.operation is not None or given.group is not None
        ]
        rows["collective"][together] = [self._collective(args[number]) for number in together]

    def _tracks(
        self, kinds: npt.NDArray[np.uint8], spans: Sequence[AnySpan], args: Sequence[Args]
    ) -> npt.NDArray[np.int32]:
        tracks = _column(map(self.tracks.hosts.__getitem__, map(_place, spans)), "i4", len(spans))
        for number in np.flatnonzero(_ON_DEVICE[kinds]).tolist():
            event, given = spans[number], args[number]
            if kinds[number] != _SYNC or _is_stream(given):
                tracks[number] = (
                    -1 - self.tracks.streams[event.pid, event.tid, given.device, given.stream]
                )
        return tracks

    def _collective(self, args: Args) -> int:
        collective = _collective_of(args)
        return self.collectives[collective] if collective != CollectiveArgs() else -1


class _Kinds(dict[str, int]):
    """Kinds by category, as files spell them."""

    def __missing__(self, category: str) -> int:
        self[category] = kind = int(_kind_of(category))
        return kind


def _column(values: Iterable[Any], dtype: str, count: int) -> npt.NDArray[Any]:
    return np.fromiter(values, dtype, count)


def _kind_of(category: str) -> Kind:
    """Return the kind of a category, of any version of the format; OTHER if unknown."""
    return _KIND_OF_CATEGORY.get(category.lower(), Kind.OTHER)
