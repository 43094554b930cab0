"""The steps of a run that torch.profiler recorded beside feedline (profiler/taps/kineto_window.py), on feedline's clock."""

import json
import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from feedline.analysis.intervals import IntArray
from feedline.analysis.traces.columns import CollectiveArgs, Kind, Shape, Trace, Track
from feedline.analysis.traces.kineto.limits import Limits
from feedline.analysis.traces.kineto.read import read_kineto
from feedline.analysis.traces.lanes import NOWHERE, lanes
from feedline.analysis.traces.shared_clock import SharedClock, marks_in, shared_clock
from feedline.analysis.traces.threads import UNKNOWN, threads
from feedline.analysis.traces.tracks import PerfettoRank, arrow, span
from feedline.profiler.errors import FeedlineError, RunDamaged
from feedline.profiler.files.bounded import MOST_WINDOW, opened
from feedline.profiler.store.layout import KINETO
from feedline.profiler.store.run_folder import Rank, Run

_ROWS = 1 << 14  # events turned into Python's numbers at a time
_FREE_BYTES, _PACKED = 64 << 20, 64  # a window may unpack to the first, and the second times its size: JSON of events shrinks by 10 to 25
_SMALLEST_EVENT = 40  # bytes of JSON
_NEAR_NS = 3600 * 10**9  # of a run: the time of day may have been set on the way
_CATEGORIES = {
    Kind.KERNEL: "kernel",
    Kind.COPY: "gpu_memcpy",
    Kind.SET: "gpu_memset",
    Kind.RUNTIME: "cuda_runtime",
    Kind.OPERATOR: "cpu_op",
    Kind.ANNOTATION: "user_annotation",
    Kind.DEVICE_ANNOTATION: "gpu_user_annotation",
    Kind.PYTHON: "python_function",
    Kind.SYNC: "cuda_sync",
    Kind.OVERHEAD: "overhead",
    Kind.SYSTEM: "system",
    Kind.OTHER: "Trace",
}


@dataclass(frozen=True)
class Window:
    """What torch.profiler recorded of a rank."""

    path: Path
    clock: SharedClock


@dataclass(frozen=True)
class Windows:
    """Those of a run.

    Attributes:
        by_rank: number of the rank -> its window.
        notes: how well the clocks agree and what could not be read, in sentences for the report.
    """

    by_rank: dict[int, Window] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)


def windows(run: Run) -> Windows:
    """Find and read the windows of a run, one after another. One that cannot be read is named in the notes."""
    found = Windows()
    for number, rank in sorted(run.ranks.items()):
        path = rank.folder / KINETO
        if os.path.lexists(path):
            try:
                _add(found, number, rank, path)
            except FeedlineError as error:
                found.notes.append(run.named(f"rank {number}: the window of torch.profiler is missing from the Perfetto trace: {error}"))
    return found


def _add(found: Windows, number: int, rank: Rank, path: Path) -> None:
    trace = read_window(path)
    clock = shared_clock(trace, rank.manifest.anchors)
    if clock is None or not _within(rank, clock.clock.to_reference(trace.origin_ns + trace.events["start"][:1])):
        why = "cannot be aligned with feedline's clock" if clock is None else "was not recorded during this run"
        found.notes.append(f"rank {number}: {path.name} {why}: it is missing from the Perfetto trace")
        return
    found.by_rank[number] = Window(path, clock)
    found.notes.append(f"rank {number}: the window of torch.profiler is aligned with feedline's clock to {clock.says()}")
    found.notes.extend(f"rank {number}: {path.name}: {note}" for note in trace.notes)


def read_window(path: Path) -> Trace:
    """A window's trace.

    Raises:
        RunDamaged: it is not a regular file of the run folder. TraceDamaged: see ``read_kineto``.
    """
    try:
        with opened(path, MOST_WINDOW) as file:
            size = os.fstat(file.fileno()).st_size
    except OSError as error:
        raise RunDamaged(f"{path} cannot be read ({error.strerror}): check its permissions") from error
    most = _FREE_BYTES + _PACKED * size
    return read_kineto(str(path), Limits(most // _SMALLEST_EVENT, most, most))


def _within(rank: Rank, begin: IntArray) -> bool:
    """Whether a window can be of this run: of one that goes on or was killed, only the beginning is known."""
    known = sorted(anchor["perf_counter_ns"] for anchor in rank.manifest.anchors)
    if not known:
        return True
    return bool(known[0] - _NEAR_NS < begin[0]) and (not rank.manifest.ended or bool(begin[0] < known[-1] + _NEAR_NS))


def lines(window: Window, rank: PerfettoRank, pid: int, on_shared: Callable[[IntArray], IntArray]) -> Iterator[str]:
    """A window's events for Perfetto: operators and calls by thread, then the device's work by stream, with arrows from calls to work.

    Args:
        rank: where tracks come from.
        pid: of the training process.
        on_shared: from CLOCK_MONOTONIC of the rank's host to the times that are written, ns.
    """
    trace = read_window(window.path)
    rows, *_ = marks_in(trace)
    chosen = np.ones(len(trace.events), bool)
    chosen[rows] = False
    start = trace.origin_ns + trace.events["start"]
    begin = on_shared(window.clock.clock.to_reference(start))
    wall = on_shared(window.clock.clock.to_reference(start + trace.events["wall"])) - begin
    made = _Made(trace, rank, begin, wall, pid)
    for track, mine in made.tracks(chosen):
        yield from made.lines(track, mine)


class _Made:
    """What the lines of one window share."""

    def __init__(self, trace: Trace, rank: PerfettoRank, begin: IntArray, wall: IntArray, pid: int) -> None:
        self._trace, self._rank, self._begin, self._wall, self._pid = trace, rank, begin, wall, str(pid)
        self._texts = Texts(trace)
        who = threads(trace)
        self._main, self._launcher = who.main, who.launcher
        launched = who.launcher[who.launcher >= 0]
        self._launches = np.zeros(len(trace.events), bool)
        self._launches[launched] = True

    def tracks(self, chosen: "np.ndarray[tuple[int], np.dtype[np.bool_]]") -> Iterator[tuple[int, IntArray]]:
        """Tracks with the rows of their events: the training's threads first, the main one before the others, then streams."""
        rows = np.flatnonzero(chosen)
        rows = rows[np.argsort(self._trace.events["track"][rows], kind="stable")]
        edges = np.flatnonzero(np.diff(self._trace.events["track"][rows], prepend=UNKNOWN))
        parts = {int(self._trace.events["track"][part[0]]): part for part in np.split(rows, edges[1:]) if len(part)}
        return iter(sorted(parts.items(), key=lambda pair: self._order(pair[0])))

    def _order(self, track: int) -> tuple[bool, bool, bool, int, int, str]:
        one = self._trace.tracks[track]
        number = int(one.thread) if one.thread.isascii() and one.thread.isdigit() else 0
        return one.device >= 0, track != self._main, one.process != self._pid, one.device, number, one.thread

    def _name(self, one: Track) -> str:
        if one.device >= 0:
            return f"GPU {one.device} stream {one.thread}"
        if one.process == self._pid:
            return f"training, operators (thread {one.thread})"
        return f"torch.profiler: {one.process} {one.thread}"

    def lines(self, track: int, rows: IntArray) -> Iterator[str]:
        """The events of one track."""
        rows = rows[np.lexsort((-self._wall[rows], self._begin[rows]))]
        lane = lanes(self._begin[rows], self._wall[rows])
        self._rank.lost += int((lane == NOWHERE).sum())
        rows, lane = rows[lane != NOWHERE], lane[lane != NOWHERE]
        tids, named = self._rank.tracks(self._name(self._trace.tracks[track]), int(lane.max(initial=0)) + 1)
        yield from named
        pid = self._rank.pid
        for first in range(0, len(rows), _ROWS):
            part = rows[first : first + _ROWS]
            columns = (self._begin, self._wall, self._launcher, self._launches)
            times = zip(*(column[part].tolist() for column in columns), lane[first : first + _ROWS].tolist(), part.tolist())
            for event, (begin, wall, launcher, launches, in_lane, row) in zip(self._trace.events[part].tolist(), times):
                _, _, correlation, nbytes, name, _, shape, collective, kind = event
                what = f"{self._texts.names[name]}, {self._texts.categories[kind]}"
                yield span(what, pid, tids[in_lane], begin, wall, self._texts.args(track, correlation, nbytes, shape, collective))
                if launches:
                    yield arrow("s", self._rank.arrow_of(row), pid, tids[in_lane], begin)
                elif launcher >= 0:
                    yield arrow("f", self._rank.arrow_of(launcher), pid, tids[in_lane], begin)


class Texts:
    """What Kineto's JSON says of events besides where and when: each distinct thing put into words once.

    Attributes:
        names: of Trace.names, as members of an object.
        categories: of each Kind, the same.
    """

    def __init__(self, trace: Trace) -> None:
        self.names = [f'"name": {json.dumps(name)}' for name in trace.names]
        self.categories = {int(kind): f'"cat": "{category}"' for kind, category in _CATEGORIES.items()}
        self._streams = [_inner(_stream(track)) for track in trace.tracks]
        self._shapes = [_inner(_shape(shape)) for shape in trace.shapes]
        self._collectives = [_inner(_collective(collective)) for collective in trace.collectives]

    def args(self, track: int, correlation: int, nbytes: int, shape: int, collective: int) -> str:
        """The members of an event's ``args``."""
        args = [self._streams[track]] if self._streams[track] else []
        args += [f'"correlation": {correlation}'] if correlation != -1 else []
        args += [f'"bytes": {nbytes}'] if nbytes != -1 else []
        args += [self._shapes[shape]] if shape >= 0 else []
        args += [self._collectives[collective]] if collective >= 0 else []
        return ", ".join(args)


def _inner(args: dict[str, Any]) -> str:
    return json.dumps(args)[1:-1]


def _stream(track: Track) -> dict[str, Any]:
    if track.device < 0:
        return {}
    thread = int(track.thread) if track.thread.isascii() and track.thread.isdigit() else None
    return {"device": track.device} | ({"stream": thread} if thread is not None else {})


def _shape(shape: Shape) -> dict[str, Any]:
    return {"Input Dims": shape.inputs, "Input type": shape.dtypes}


def _collective(collective: CollectiveArgs) -> dict[str, Any]:
    said = {
        "Collective name": collective.operation,
        "Process Group Name": collective.group,
        "Process Group Ranks": None if collective.ranks is None else json.dumps(collective.ranks),
        "Group size": collective.size,
        "Seq": collective.sequence,
        "In msg nelems": collective.elements_in,
        "Out msg nelems": collective.elements_out,
        "dtype": collective.dtype,
    }
    return {name: value for name, value in said.items() if value is not None}
