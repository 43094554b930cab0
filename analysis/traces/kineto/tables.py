"""Names, tracks, shapes and collectives: each value once, and its number for the columns."""

from collections.abc import Callable
from typing import Any, Generic, TypeVar

import msgspec

from feedline.analysis.traces.columns import CollectiveArgs, Shape, Track
from feedline.analysis.traces.kineto.salvage import whole
from feedline.analysis.traces.kineto.schema import NONE, Args
from feedline.profiler.errors import TraceDamaged

Key = TypeVar("Key")
LONGEST_SHAPE = 1 << 16  # bytes of text; a list of a thousand tensors has half of it
_NO_STREAM = (-1, (1 << 32) - 1)  # CUPTI_SYNCHRONIZATION_INVALID_VALUE, as libkineto writes it


class Budget:
    """Bytes of text that may still be held."""

    def __init__(self, path: str, size: int) -> None:
        self.path, self.left = path, size

    def take(self, size: int) -> None:
        """Raises: TraceDamaged: that is too much."""
        self.left -= size
        if self.left < 0:
            raise TraceDamaged(f"{self.path} has more names and arguments than allowed: raise --max-events if it is a trace")


class Numbered(dict[Key, int], Generic[Key]):
    """Numbers values as they are asked for: ``numbered[value]``. ``held[number]`` is what ``meaning`` makes of it."""

    def __init__(self, budget: Budget, meaning: Callable[[Key], Any] = lambda key: key) -> None:
        super().__init__()
        self.budget, self.meaning, self.held = budget, meaning, list[Any]()

    def __missing__(self, key: Key) -> int:
        self.budget.take(100 + (len(key) if isinstance(key, (str, bytes)) else 8 * len(repr(key))))
        self[key] = number = len(self.held)
        self.held.append(self.meaning(key))
        return number


class Tracks:
    """Tracks by what events have of them, and the names that the file gives threads.

    Attributes:
        processes: pid -> name that the file gives it.
    """

    def __init__(self, budget: Budget) -> None:
        self.budget = budget
        self.hosts: Numbered[tuple[Any, ...]] = Numbered(budget)
        self.streams: Numbered[tuple[Any, ...]] = Numbered(budget)
        self.processes: dict[str, str] = {}
        self._names: dict[tuple[str, str, int | None], str] = {}

    def label(self, pid: object, tid: object, args: Args) -> None:
        """Take the name of a thread. Of two names the greater one, as the order of a file means nothing."""
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
        """All tracks: those of hosts, then those of streams."""
        hosts = [Track(str(pid), str(tid), -1, self._name(pid, tid, None)) for pid, tid in self.hosts]
        streams = []
        for pid, tid, device, stream in self.streams:
            number = _device_of(pid, device)
            streams.append(Track(str(pid), _stream_of(tid, stream), number, self._name(pid, tid, number)))
        return hosts + streams

    def _name(self, pid: object, tid: object, device: int | None) -> str:
        place = str(pid), str(tid)
        return self._names.get((*place, device), self._names.get((*place, None), ""))


def is_stream(args: Args) -> bool:
    """Whether it is a stream that waits in a synchronization, and not a thread of the host."""
    return args.device is not None and isinstance(args.stream, int) and args.stream not in _NO_STREAM


def _device_of(pid: object, device: object) -> int:
    """The device of an event: what its arguments say, else its process, which is the device's number on streams."""
    for value in (device, pid):
        number = whole(value, -1)
        if number >= 0:
            return number
    return 0


def _stream_of(tid: object, stream: object) -> str:
    """The number of a stream, as text: what the arguments say, else its thread, which was called "stream 7" in 2021."""
    number = whole(stream, -1) if stream is not None else -1
    return str(number) if number >= 0 else str(tid).removeprefix("stream ")


def shape_of(key: bytes) -> Shape:
    """Sizes and types of inputs, from the texts of both lists with a bar between them.

    A list of tensors stands as that many inputs of its type.
    """
    sizes, dtypes = (_list(text) for text in key.split(b"|", 1))
    inputs: list[tuple[int, ...]] = []
    types: list[str] = []
    for number, size in enumerate(sizes):
        several = size if isinstance(size, list) and size and all(isinstance(one, list) for one in size) else [size]
        inputs += [_sizes(one) for one in several]
        types += [str(dtypes[number])] * len(several) if number < len(dtypes) else []
    types += map(str, dtypes[len(sizes) :])
    return Shape(tuple(inputs), tuple(types))


def collective_of(args: Args) -> CollectiveArgs:
    """What a kernel or a call of record_param_comms says of its collective."""
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
    """Ranks of a group. Above 30, libkineto leaves out those in the middle, and newer ones say how the list goes on."""
    ranks = _list(bytes(args.ranks)) if args.ranks is not NONE else []
    if isinstance(ranks, str):
        ranks = _list(ranks.encode())
    if ranks and all(isinstance(rank, int) for rank in ranks):
        return tuple(ranks)
    first, stride, size = (whole(value, -1) for value in (args.first, args.stride, args.size))
    if ranks == "..." and first >= 0 and stride > 0 and 0 < size <= 1 << 20:
        return tuple(range(first, first + stride * size, stride))
    return None


def _list(text: bytes) -> Any:
    if not text or len(text) > LONGEST_SHAPE:
        return []
    try:
        return msgspec.json.decode(text, type=list[Any] | str)
    except (msgspec.DecodeError, RecursionError, UnicodeDecodeError):
        return "..."


def _sizes(sizes: object) -> tuple[int, ...]:
    return tuple(sizes) if isinstance(sizes, list) and all(type(size) is int for size in sizes) else ()


def _named(value: object) -> str | None:
    return None if value is None or value == "" else str(value)


def _counted(value: object) -> int | None:
    number = whole(value, -1) if value is not None else -1
    return number if number >= 0 else None
