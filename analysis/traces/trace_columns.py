"""A trace of one rank as columns, whoever made it and in whatever year.

Times are whole nanoseconds. What a maker of traces calls a category becomes one of ``Kind``; names,
tracks, shapes and the arguments of collectives are held once and referred to by number.
"""

import enum
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

# an event with shapes, strides and concrete inputs; Kineto's files have 130 (2021) to 420 (all
# options on)
_BYTES_PER_EVENT = 640
EVENT_DTYPE = np.dtype(
    [
        ("start", "<i8"),  # ns since Trace.origin_ns
        ("wall", "<i8"),  # ns
        ("correlation", "<i8"),  # joins what the host launched with what the device did; -1: none
        ("nbytes", "<i8"),  # COPY, SET: bytes; -1: unknown
        ("name", "<i4"),  # index into Trace.names
        ("track", "<i4"),  # index into Trace.tracks
        ("shape", "<i4"),  # OPERATOR: index into Trace.shapes; -1: not recorded
        (
            "collective",
            "<i4",
        ),  # index into Trace.collectives; -1: it is none, or nothing is known of it but its name
        ("kind", "u1"),  # Kind
    ]
)
Rows = npt.NDArray[np.void]
_SORT_COLUMNS = (
    "start",
    "wall",
    "track",
    "name",
    "kind",
    "correlation",
    "nbytes",
    "shape",
    "collective",
)


@dataclass(frozen=True)
class TraceLimits:
    """What reading one trace may take. A file beyond it is refused, never read in part.

    Attributes:
        events: rows kept. Reading peaks at about 75 bytes a row, so the default is 7.5 GB, or a
            JSON of some 25 GB.
        inflated_bytes: of JSON, unpacked. It is held 2 MB at a time: the bound is on time, for
            archives that unpack without end.
        text_bytes: of names, threads, shapes and arguments that differ, which are held once each.
    """

    events: int = 100_000_000
    inflated_bytes: int = 100_000_000 * _BYTES_PER_EVENT
    text_bytes: int = 1 << 30

    @classmethod
    def of(cls, events: int) -> "TraceLimits":
        """Return the limits that ``--max-events`` sets.

        They are the number of events, and the bytes of JSON that they can take.
        """
        return cls(events, events * _BYTES_PER_EVENT)


DEFAULT = TraceLimits()


class Kind(enum.IntEnum):
    """What an event is. Numbers are part of the run folder's schema: add, never change."""

    KERNEL = 1
    COPY = 2
    SET = 3
    RUNTIME = 4  #: a call of the CUDA / HIP runtime or driver on the host
    OPERATOR = 5
    ANNOTATION = 6  #: record_function, NVTX, ProfilerStep, enumerate(DataLoader), on the host
    DEVICE_ANNOTATION = 7  #: the shadow of an annotation over the device's work: no work of its own
    PYTHON = 8  #: a Python function (with_stack)
    SYNC = 9  #: the host, or a stream, waits for the device (cuda_sync; CUPTI synchronization)
    OVERHEAD = 10  #: of the profiler itself
    SYSTEM = 11  #: operating system: a call, or a thread that was scheduled
    OTHER = 12


#: What makes a device busy.
DEVICE_WORK = (Kind.KERNEL, Kind.COPY, Kind.SET)


@dataclass(frozen=True)
class Track:
    """Where events happen: a thread of a process, or a stream of a device.

    Attributes:
        process, thread: as the trace has them, as text. A stream's thread is its number.
        device: number of the device; -1: a host thread.
        name: of the thread, where the trace has one.
    """

    process: str
    thread: str
    device: int = -1
    name: str = ""


@dataclass(frozen=True)
class CollectiveArgs:
    """What the trace says of a collective. None: nothing.

    Attributes:
        operation: "allreduce", "all_to_allv", ... as the trace has it.
        group: name of the process group.
        ranks: global ranks of the group, where the trace lists all of them.
        size: how many ranks the group has.
        sequence: number within the group.
        elements_in, elements_out: of dtype, on this rank.
    """

    operation: str | None = None
    group: str | None = None
    ranks: tuple[int, ...] | None = None
    size: int | None = None
    sequence: int | None = None
    elements_in: int | None = None
    elements_out: int | None = None
    dtype: str | None = None

    def order(self) -> list[tuple[bool, object]]:
        """Return a key to sort by."""
        return [(value is not None, value) for value in vars(self).values()]


@dataclass(frozen=True)
class Shape:
    """What an operator was called with.

    Attributes:
        inputs: sizes of each input; () if it is not a tensor.
        dtypes: of each input, as the trace has them ("float", "c10::Half", "Scalar", "").
    """

    inputs: tuple[tuple[int, ...], ...]
    dtypes: tuple[str, ...]


@dataclass(frozen=True, eq=False)
class Trace:
    """One rank of one recording.

    Attributes:
        source: file name, without its folder.
        maker: "kineto", "nsight", "rocprof" or "xprof" (JAX, TensorFlow).
        rank: None: the content does not say.
        world_size: None: the content does not say.
        origin_ns: what ``start`` counts from, Unix time; 0: some clock that began at an unknown
            moment.
        events: EVENT_DTYPE [n], sorted by (start, -wall, track, name).
        groups: process groups by name, where the content lists their ranks.
        devices: number -> name, e.g. 0 -> "NVIDIA A100-SXM4-80GB".
        notes: what was wrong with the file, in sentences for the report.
    """

    source: str
    maker: str
    rank: int | None
    world_size: int | None
    origin_ns: int
    events: npt.NDArray[np.void]
    names: list[str]
    tracks: list[Track]
    shapes: list[Shape] = field(default_factory=list)
    collectives: list[CollectiveArgs] = field(default_factory=list)
    groups: dict[str, tuple[int, ...]] = field(default_factory=dict)
    devices: dict[int, str] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)


def sort(rows: Rows) -> None:
    """Order rows by (start, -wall, track, name) and then by all else.

    It is done in place, one column at a time.
    """
    order = np.argsort(rows["start"])
    start = rows["start"][order]
    tied = np.zeros(len(rows) + 1, bool)  # a row with the one before it
    tied[1:-1] = start[1:] == start[:-1]
    del start
    for name in _SORT_COLUMNS[1:]:
        places = np.flatnonzero(tied[:-1] | tied[1:])
        if not len(places):
            break
        keys = rows[name][order[places]]
        group = np.cumsum(~tied[:-1])[places]
        moved = np.lexsort((-keys if name == "wall" else keys, group))
        order[places] = order[places[moved]]
        keys = keys[moved]
        tied[places[1:]] &= keys[1:] == keys[:-1]
    for name in EVENT_DTYPE.names or ():
        rows[name] = rows[name][order]


def canonical(
    column: npt.NDArray[np.int32], values: Sequence[Any], key: Callable[[Any], Any]
) -> list[Any]:
    """Leave out values that no row refers to, order the others, and renumber the column in place.

    -1 stays.

    What a trace holds then does not depend on the order of its file.
    """
    used = np.zeros(len(values) + 1, bool)
    used[column] = True  # -1 is the last
    places = np.flatnonzero(used[:-1]).tolist()
    kept = sorted({values[number] for number in places}, key=key)
    numbers = {value: number for number, value in enumerate(kept)}
    new = np.full(len(values) + 1, -1, np.int32)
    for number in places:
        new[number] = numbers[values[number]]
    column[:] = new[column]
    return kept
