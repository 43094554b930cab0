"""The steps of a run that torch.profiler recorded beside feedline, on feedline's clock.

profiler/taps/kineto_window.py asks for them.
"""

import json
import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from feedline.analysis.intervals import IntArray, union
from feedline.analysis.traces.collectives import RankClock
from feedline.analysis.traces.kernel_names import FLOAT32_PRODUCT, is_named, of_kinds
from feedline.analysis.traces.kineto.kineto_reader import read_kineto
from feedline.analysis.traces.launching import GpuWork
from feedline.analysis.traces.perfetto import (
    NOWHERE,
    PerfettoRank,
    arrow_line,
    assign_lanes,
    span_line,
)
from feedline.analysis.traces.trace_columns import (
    CollectiveArgs,
    Kind,
    Shape,
    Trace,
    TraceLimits,
    Track,
)
from feedline.analysis.traces.trace_steps import NO_TRACK, find_threads, profiler_steps
from feedline.profiler.clock import MARK
from feedline.profiler.errors import FeedlineError, RunDamaged
from feedline.profiler.events import Stage
from feedline.profiler.files.bounded import MOST_WINDOW, opened
from feedline.profiler.store.layout import KINETO
from feedline.profiler.store.run_folder import Rank, Run
from feedline.profiler.store.segment_reader import Process

_BURST_NS = 1_000_000  # marks farther apart belong to different bursts
#: The run's own readings of both clocks were measured 2 us off the marks; but one taken while
#: another process had the CPU is off by a scheduler's slice, which this is some of.
_READINGS_NS = 10_000_000
_ROWS = 1 << 14  # events turned into Python's numbers at a time
# a window may unpack to the first, and the second times its size: JSON of events shrinks by 10 to
# 25
_FREE_BYTES, _PACKED = (64 << 20, 64)
_SMALLEST_EVENT = 40  # bytes of JSON
_NEAR_NS = 3600 * 10**9  # of a run: the time of day may have been set on the way


@dataclass(frozen=True)
class _SharedClock:
    """How to put a trace's times on feedline's clock.

    Attributes:
        clock: from the trace's time (Trace.origin_ns + start) to CLOCK_MONOTONIC of the host; its
            bound in ns.
        marks: how many marks say so; 0: the run's readings of both clocks at its begin and end.
    """

    clock: RankClock
    marks: int

    def says(self) -> str:
        """Say for a reader of the report how well the clocks agree, and by what."""
        bound = (
            f"{self.clock.bound / 1000:.1f} µs"
            if self.clock.bound < 1e6
            else f"{self.clock.bound / 1e6:.1f} ms"
        )
        if self.marks:
            return f"within {bound} ({self.marks} clock marks in the trace)"
        return (
            f"within about {bound} (from the run's readings of both clocks: the trace has no "
            f"clock marks)"
        )


def _marks_in(trace: Trace) -> tuple[IntArray, IntArray]:
    """Find the marks of feedline's clock.

    Returns:
        Their rows in ``Trace.events``, in order of time, and what each says: CLOCK_MONOTONIC, ns.
        Both int64 [n].
    """
    mark_of_name = np.full(max(len(trace.names), 1), -1, np.int64)
    for number, name in enumerate(trace.names):
        digits = name.removeprefix(MARK)
        if digits != name and digits.isascii() and digits.isdigit() and len(digits) < 19:
            mark_of_name[number] = int(digits)
    reading = mark_of_name[trace.events["name"]]
    rows = np.flatnonzero(reading >= 0)
    rows = rows[np.argsort(reading[rows], kind="stable")]
    return rows, reading[rows]


def _shared_clock(trace: Trace, anchors: Sequence[dict[str, int]]) -> _SharedClock | None:
    """Find it from the marks, or else from the manifest's anchors (clock.anchor()).

    None: neither is there.

    Kineto's times are Unix time, worked out from the processor's counter; feedline's are
    CLOCK_MONOTONIC. feedline's window puts marks into the trace whose names hold CLOCK_MONOTONIC as it
    was read just before them (profiler/taps/kineto_window.py). So mark i begins after its own reading
    and has ended before that of mark i + 1, and what is added to Kineto's time lies between

        reading i - start i  <=  offset  <=  reading i+1 - end i

    If one offset satisfies all pairs of marks, half the room that they leave is the error that cannot
    be excluded. If none does, the clocks parted on the way (somebody set the time): then each burst of
    marks gives an offset of its own, and the bound covers what lies between.
    """
    rows, reading = _marks_in(trace)
    if len(rows) > 1:
        start = trace.origin_ns + trace.events["start"][rows]
        return _SharedClock(
            _by_marks(reading, start, start + trace.events["wall"][rows]), len(rows)
        )
    if not trace.origin_ns or not anchors:
        return None
    at = np.array([anchor["time_ns"] for anchor in anchors], np.int64)
    offset = np.array([anchor["perf_counter_ns"] for anchor in anchors], np.int64) - at
    order = np.argsort(at, kind="stable")
    return _SharedClock(
        RankClock(at[order], offset[order], float(np.ptp(offset)) + _READINGS_NS), 0
    )


def _by_marks(reading: IntArray, start: IntArray, end: IntArray) -> RankClock:
    least, most = (reading - start)[:-1], reading[1:] - end[:-1]
    if least.max() <= most.min():
        return RankClock(
            start[:1], _middle(least.max(), most.min()), float(most.min() - least.max()) / 2
        )
    close = np.diff(reading) <= _BURST_NS
    close |= not close.any()
    # first pairs of bursts
    edges = np.flatnonzero(np.append(True, np.diff(np.cumsum(~close)[close]) > 0))
    least, most, at = least[close], most[close], start[:-1][close]
    offset = _middle(np.maximum.reduceat(least, edges), np.minimum.reduceat(most, edges))
    clock = RankClock(at[edges], offset, 0.0)
    shown = clock.to_reference(at) - at
    room = np.maximum(np.abs(shown - least), np.abs(most - shown)).max()
    return replace(clock, bound=float(room + np.abs(np.diff(offset)).max(initial=0)))


def _middle(low: IntArray, high: IntArray) -> IntArray:
    return np.atleast_1d(low + (high - low) // 2).astype(np.int64)


_CATEGORY_OF_KIND = {
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
class _Window:
    """What torch.profiler recorded of a rank."""

    path: Path
    clock: _SharedClock


@dataclass(frozen=True)
class Windows:
    """Those of a run.

    Attributes:
        by_rank: number of the rank -> its window.
        notes: how well the clocks agree and what could not be read, in sentences for the report.
    """

    by_rank: dict[int, _Window] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)


def read_windows(run: Run) -> Windows:
    """Find and read the windows of a run, one after another.

    One that cannot be read is named in the notes.
    """
    result = Windows()
    for number, rank in sorted(run.ranks.items()):
        path = rank.folder / KINETO
        if os.path.lexists(path):
            try:
                _add(result, number, rank, path)
            except FeedlineError as error:
                result.notes.append(
                    run.named(
                        f"rank {number}: the window of torch.profiler is missing from the "
                        f"Perfetto trace: {error}"
                    )
                )
    return result


def _add(result: Windows, number: int, rank: Rank, path: Path) -> None:
    trace = _read_window(path)
    clock = _shared_clock(trace, rank.manifest.anchors)
    if clock is None or not _within(
        rank, clock.clock.to_reference(trace.origin_ns + trace.events["start"][:1])
    ):
        why = (
            "cannot be aligned with feedline's clock"
            if clock is None
            else "was not recorded during this run"
        )
        result.notes.append(
            f"rank {number}: {path.name} {why}: it is missing from the Perfetto trace"
        )
        return
    result.by_rank[number] = _Window(path, clock)
    result.notes.append(
        f"rank {number}: the window of torch.profiler is aligned with feedline's clock to "
        f"{clock.says()}"
    )
    result.notes.extend(f"rank {number}: {path.name}: {note}" for note in trace.notes)


def _read_window(path: Path) -> Trace:
    """Return a window's trace.

    Raises:
        RunDamaged: it is not a regular file of the run folder. TraceDamaged: see ``read_kineto``.
    """
    try:
        with opened(path, MOST_WINDOW) as file:
            size = os.fstat(file.fileno()).st_size
    except OSError as error:
        raise RunDamaged(
            f"{path} cannot be read ({error.strerror}): check its permissions"
        ) from error
    most = _FREE_BYTES + _PACKED * size
    return read_kineto(str(path), TraceLimits(most // _SMALLEST_EVENT, most, most))


def _within(rank: Rank, begin: IntArray) -> bool:
    """Tell whether a window can be of this run.

    Of one that goes on or was killed, only the beginning is known.
    """
    known = sorted(anchor["perf_counter_ns"] for anchor in rank.manifest.anchors)
    if not known:
        return True
    return bool(known[0] - _NEAR_NS < begin[0]) and (
        not rank.manifest.ended or bool(begin[0] < known[-1] + _NEAR_NS)
    )


def window_lines(
    window: _Window, rank: PerfettoRank, pid: int, on_shared: Callable[[IntArray], IntArray]
) -> Iterator[str]:
    """Write a window's events for Perfetto.

    They are operators and calls by thread, the device's work by stream, and arrows between.

    Args:
        window: of a rank.
        rank: where tracks come from.
        pid: of the training process.
        on_shared: from CLOCK_MONOTONIC of the rank's host to the times that are written, ns.
    """
    trace = _read_window(window.path)
    rows, *_ = _marks_in(trace)
    chosen = np.ones(len(trace.events), bool)
    chosen[rows] = False
    start = trace.origin_ns + trace.events["start"]
    begin = on_shared(window.clock.clock.to_reference(start))
    wall = on_shared(window.clock.clock.to_reference(start + trace.events["wall"])) - begin
    events = _Made(trace, rank, begin, wall, pid)
    for track, mine in events.tracks(chosen):
        yield from events.lines(track, mine)


class _Made:
    """What the lines of one window share."""

    def __init__(
        self, trace: Trace, rank: PerfettoRank, begin: IntArray, wall: IntArray, pid: int
    ) -> None:
        self._trace, self._rank, self._begin, self._wall, self._pid = (
            trace,
            rank,
            begin,
            wall,
            str(pid),
        )
        self._texts = _Texts(trace)
        who = find_threads(trace)
        self._main, self._launcher = who.main, who.launcher
        launched = who.launcher[who.launcher >= 0]
        self._launches = np.zeros(len(trace.events), bool)
        self._launches[launched] = True

    def tracks(
        self, chosen: "np.ndarray[tuple[int], np.dtype[np.bool_]]"
    ) -> Iterator[tuple[int, IntArray]]:
        """Yield tracks with the rows of their events.

        The training's threads first, the main one before the others, then streams.
        """
        rows = np.flatnonzero(chosen)
        rows = rows[np.argsort(self._trace.events["track"][rows], kind="stable")]
        edges = np.flatnonzero(np.diff(self._trace.events["track"][rows], prepend=NO_TRACK))
        parts = {
            int(self._trace.events["track"][part[0]]): part
            for part in np.split(rows, edges[1:])
            if len(part)
        }
        return iter(sorted(parts.items(), key=lambda pair: self._order(pair[0])))

    def _order(self, track: int) -> tuple[bool, bool, bool, int, int, str]:
        of_track = self._trace.tracks[track]
        number = (
            int(of_track.thread) if of_track.thread.isascii() and of_track.thread.isdigit() else 0
        )
        return (
            of_track.device >= 0,
            track != self._main,
            of_track.process != self._pid,
            of_track.device,
            number,
            of_track.thread,
        )

    def _name(self, track: Track) -> str:
        if track.device >= 0:
            return f"GPU {track.device} stream {track.thread}"
        if track.process == self._pid:
            return f"training, operators (thread {track.thread})"
        return f"torch.profiler: {track.process} {track.thread}"

    def lines(self, track: int, rows: IntArray) -> Iterator[str]:
        """Yield the events of one track."""
        rows = rows[np.lexsort((-self._wall[rows], self._begin[rows]))]
        lane = assign_lanes(self._begin[rows], self._wall[rows])
        self._rank.lost += int((lane == NOWHERE).sum())
        rows, lane = rows[lane != NOWHERE], lane[lane != NOWHERE]
        tids, named = self._rank.tracks(
            self._name(self._trace.tracks[track]), int(lane.max(initial=0)) + 1
        )
        yield from named
        pid = self._rank.pid
        for first in range(0, len(rows), _ROWS):
            part = rows[first : first + _ROWS]
            columns = (self._begin, self._wall, self._launcher, self._launches)
            times = zip(
                *(column[part].tolist() for column in columns),
                lane[first : first + _ROWS].tolist(),
                part.tolist(),
            )
            for event, (begin, wall, launcher, launches, in_lane, row) in zip(
                self._trace.events[part].tolist(), times
            ):
                _, _, correlation, nbytes, name, _, shape, collective, kind = event
                what = f"{self._texts.names[name]}, {self._texts.categories[kind]}"
                yield span_line(
                    what,
                    pid,
                    tids[in_lane],
                    begin,
                    wall,
                    self._texts.args(track, correlation, nbytes, shape, collective),
                )
                if launches:
                    yield arrow_line("s", self._rank.arrow_of(row), pid, tids[in_lane], begin)
                elif launcher >= 0:
                    yield arrow_line("f", self._rank.arrow_of(launcher), pid, tids[in_lane], begin)


class _Texts:
    """What Kineto's JSON says of events besides where and when.

    Each distinct thing is put into words once.

    Attributes:
        names: of Trace.names, as members of an object.
        categories: of each Kind, the same.
    """

    def __init__(self, trace: Trace) -> None:
        self.names = [f'"name": {json.dumps(name)}' for name in trace.names]
        self.categories = {
            int(kind): f'"cat": "{category}"' for kind, category in _CATEGORY_OF_KIND.items()
        }
        self._streams = [_inner(_stream(track)) for track in trace.tracks]
        self._shapes = [_inner(_shape(shape)) for shape in trace.shapes]
        self._collectives = [_inner(_collective(collective)) for collective in trace.collectives]

    def args(self, track: int, correlation: int, nbytes: int, shape: int, collective: int) -> str:
        """Write the members of an event's ``args``."""
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
    members = {
        "Collective name": collective.operation,
        "Process Group Name": collective.group,
        "Process Group Ranks": None if collective.ranks is None else json.dumps(collective.ranks),
        "Group size": collective.size,
        "Seq": collective.sequence,
        "In msg nelems": collective.elements_in,
        "Out msg nelems": collective.elements_out,
        "dtype": collective.dtype,
    }
    return {name: value for name, value in members.items() if value is not None}


def gpu_work(rank: Rank, main: Process) -> GpuWork | None:
    """Sum up the window of a rank.

    None: there is none in this training, it cannot be read, or it saw no GPU or several.

    The profiler slows the host, not the kernels: what the GPU needs for a step holds for the others
    too, how long it idled does not. All work that the steps launched counts, also what ran after
    them: the host may be many steps ahead.
    """
    path = rank.folder / KINETO
    if not len(main.of(Stage.PROFILED)) or not os.path.lexists(path):
        return None
    try:
        trace = _read_window(path)
    except FeedlineError:
        return None  # a note of the report says why
    who = find_threads(trace)
    steps = len(profiler_steps(trace, who) or ())
    launched = who.launcher >= 0
    work = trace.events[launched]
    products = trace.events[
        launched & of_kinds(trace, Kind.KERNEL) & is_named(trace, FLOAT32_PRODUCT)
    ]
    kernels = work["wall"][work["kind"] == Kind.KERNEL]
    devices = {trace.tracks[track].device for track in np.unique(work["track"])}
    if not steps or not len(kernels) or len(devices) > 1:
        return None
    return GpuWork(
        busy_s=_covered_s(work) / steps,
        kernels=len(kernels) / steps,
        kernel_s=float(kernels.mean()) / 1e9,
        steps=steps,
        ranks=ranks if isinstance(ranks := rank.manifest.place.get("world_size"), int) else 1,
        float32_products_s=_covered_s(products) / steps,
        device=trace.devices.get(min(devices), ""),
    )


def _covered_s(events: npt.NDArray[np.void]) -> float:
    """Return seconds in which one of them runs, or several."""
    spans = union(events["start"], events["start"] + events["wall"])
    return float((spans[:, 1] - spans[:, 0]).sum()) / 1e9
