"""A run as a Chrome trace for Perfetto.

pid = rank, tracks for threads of the training, torch.profiler's operators and streams, workers, and
below each process its sampled code. All are on one clock, in microseconds. It is written line by line: a run of a million events takes no
more memory than its records.
"""

import gzip
import json
import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field
from functools import partial
from itertools import islice
from pathlib import Path
from types import ModuleType
from typing import BinaryIO

import numpy as np

from feedline.analysis.intervals import IntArray
from feedline.analysis.measure.code_places import (
    IDLE,
    MAKING,
    OTHER,
    called,
    program_frames,
    standing,
    within_the_program,
)
from feedline.analysis.measure.counted_steps import Counted
from feedline.analysis.measure.roles import inside_process
from feedline.analysis.measure.steps import all_boundaries
from feedline.analysis.ranks.read_collectives import clock_of
from feedline.analysis.traces.collectives import RankClock
from feedline.analysis.traces.perfetto import (
    NOWHERE,
    PerfettoRank,
    assign_lanes,
    counter_line,
    span_line,
)
from feedline.analysis.traces.windows import Windows, window_lines
from feedline.profiler.errors import FeedlineError, RunDamaged
from feedline.profiler.events import UNMEASURED, Flag, Stage
from feedline.profiler.files import output
from feedline.profiler.store.record_columns import meaning
from feedline.profiler.store.run_folder import Rank, Run
from feedline.profiler.store.sampled_stacks import StackFrame
from feedline.profiler.store.segment_reader import Process
from feedline.profiler.store.stacks_reader import StackTimes, Stretch, name_of

#: From a rank's CLOCK_MONOTONIC, ns, to the times that are written, ns.
_Clock = Callable[[IntArray], IntArray]

_Key = tuple[str, str]  # file and function; of a place or a library's function, the file is empty
_Chain = tuple[tuple[_Key, int], ...]  # functions, outermost first, and the line of each
_packing: ModuleType = gzip
_LEVEL = 5
try:  # five times as fast
    from isal import igzip as _packing

    _LEVEL = 2
except ImportError:
    pass
_LINES_AT_A_TIME = 4096
#: Stages whose records hold bytes, or CPU time.
_WITH_BYTES = frozenset(stage for stage in Stage if meaning(stage, "nbytes") == "nbytes")
_WITH_CPU = frozenset(stage for stage in Stage if meaning(stage, "cpu") == "cpu")
_NAMED = (
    Stage.READ,
    Stage.DECODE,
    Stage.AUGMENT,
    Stage.FORWARD,
    Stage.LOSS,
    Stage.GRADIENTS,
    Stage.OPTIMIZER,
    Stage.USER,
    Stage.COLLECTIVE,
)
_OF_BATCHES = (
    Stage.FETCH,
    Stage.COLLATE,
    Stage.NEXT,
    Stage.SAMPLE,
    Stage.IDLE,
    Stage.PICKLE,
    Stage.ARRIVE,
)
#: What does not happen in a thread gets tracks of its own, behind those of threads: a record's
#: thread is below 256.
_GPU, _COLLECTIVES = 256, 257
_OTHER_HOST_NS = 50_000_000  # clocks of one host are not read so far apart
_NO_SPANS = (
    *(
        Stage.TRAFFIC,
        Stage.BATCH,
        Stage.PROFILED,
        Stage.FLOP,
        Stage.GROUP,
        Stage.CLOCK,
        Stage.START,
        Stage.VALUE,
        Stage.GRADIENT,
    ),
    *(Stage.KERNEL, Stage.MARKS, Stage.LOOK, Stage.LOOKED, Stage.MADE),
    *(Stage.OWN_CODE, Stage.CALLED, Stage.DROPPED, Stage.CONTENTS),
    *(Stage.TAKEN, Stage.WOKEN, Stage.SUMS, Stage.KEPT, Stage.BEGUN),
)


def is_trace(path: Path) -> bool:
    """Tell whether a file's name asks for a trace."""
    return path.name.endswith((".trace.json", ".trace.json.gz", "trace.json.gz"))


def write(run: Run, path: Path, windows: Windows | None = None) -> list[str]:
    """Write all ranks of a run into a file that the user named; an older one is replaced.

    Arguments and result as of ``write_into``.

    Raises:
        OutputError: the file cannot be written; nothing is left of it.
    """
    with output.replacing(path) as file:
        return write_into(run, file, path.suffix == ".gz", windows)


def write_into(run: Run, file: BinaryIO, pack: bool, windows: Windows | None) -> list[str]:
    """Write all ranks of a run.

    Args:
        file: open for writing.
        pack: by gzip.
        windows: what torch.profiler recorded of them; None: nothing.

    Returns:
        What is missing in the file, in sentences.

    Raises:
        OSError: the file cannot be written to.
    """
    notes: list[str] = []
    windows = windows or Windows()
    about = json.dumps({"feedline": {"clocks": windows.notes}})
    with _packing.GzipFile("", "wb", _LEVEL, file, 0) if pack else nullcontext(file) as packed:
        packed.write(f'{{"displayTimeUnit": "ns", "otherData": {about}, "traceEvents": ['.encode())
        lines, comma = _lines_of(run, windows, notes), "\n"
        while part := list(islice(lines, _LINES_AT_A_TIME)):
            packed.write((comma + ",\n".join(part)).encode())
            comma = ",\n"
        packed.write(b"\n]}\n")
    return notes


def _lines_of(run: Run, windows: Windows, notes: list[str]) -> Iterator[str]:
    """Return the events of all ranks, one object a line; times count from the first rank's start.

    Args:
        notes: what is left out is appended.
    """
    ranks = list(_readable(run, notes))
    clocks = _clocks([rank for _, rank in ranks])
    for (number, rank), clock in zip(ranks, clocks):
        made = PerfettoRank(number)
        yield from made.named()
        code = _sampled(rank, notes)
        for process in rank.processes:
            if not process.is_worker:
                yield from _process(process, made, clock)
                yield from _code_lines(code.get(name_of(process), ()), _label(process), made, clock)
        if number in windows.by_rank:
            try:
                yield from window_lines(windows.by_rank[number], made, rank.manifest.pid, clock)
            except FeedlineError as error:  # it could be read a moment ago
                notes.append(f"rank {number}: {error}")
        for process in rank.processes:
            if process.is_worker:
                yield from _process(process, made, clock)
                yield from _code_lines(code.get(name_of(process), ()), _label(process), made, clock)
        if made.lost:
            notes.append(
                f"rank {number}: {made.lost:,} events are not in the trace: more overlap than "
                f"there are tracks"
            )


def _readable(run: Run, notes: list[str]) -> Iterator[tuple[int, Rank]]:
    """Return the ranks whose records can be read; the others are noted.

    Raises:
        RunDamaged: none can.
    """
    damaged: list[RunDamaged] = []
    for number, rank in sorted(run.ranks.items()):
        try:
            _ = rank.processes
        except RunDamaged as error:
            damaged.append(error)
            notes.append(f"rank {number}: {error}")
        else:
            yield number, rank
    if len(damaged) == len(run.ranks):
        raise damaged[0]


def _sampled(rank: Rank, notes: list[str]) -> dict[str, list[Stretch]]:
    """Return process -> its sampled stacks; what is wrong with them is noted."""
    try:
        times = StackTimes.of(rank)
    except FeedlineError as error:
        notes.append(f"rank {rank.number}: {error}")
        return {}
    return times.stretches() if times is not None else {}


def _clocks(ranks: list[Rank]) -> list[_Clock]:
    """Return the clock of each rank, from the moment on at which the first one began.

    Perfetto drops what lies before 0.
    """
    host = _measured(ranks[0])[1] if len(ranks) > 1 else ""
    onto: list[_Clock] = (
        [_onto(ranks[0], rank, host) for rank in ranks]
        if len(ranks) > 1
        else [partial(_less, origin=0)]
    )
    began = [
        int(clock(np.array([_anchor(rank)["perf_counter_ns"]]))[0])
        for clock, rank in zip(onto, ranks)
        if rank.manifest.anchors
    ]
    return [partial(_less, origin=min(began, default=0), clock=clock) for clock in onto]


def _onto(base: Rank, rank: Rank, host: str) -> _Clock:
    """Return a rank's clock on that of another, on ``host``, as it was measured.

    Where it was not, it goes by their times of day if they must be of two hosts, and as it is if
    not.
    """
    clock, own = _measured(rank)
    if clock is not None and own != host:
        return clock.to_reference
    apart = _time_of_day(rank) - _time_of_day(base)
    return partial(_less, origin=-apart if abs(apart) > _OTHER_HOST_NS else 0)


def _time_of_day(rank: Rank) -> int:
    return _anchor(rank)["time_ns"] - _anchor(rank)["perf_counter_ns"]


def _measured(rank: Rank) -> tuple[RankClock | None, str]:
    try:
        main = rank.main
    except FeedlineError:
        return None, "unknown"
    clock, host = clock_of(main, int(main.records["start"].max(initial=0)))
    return clock if len(clock.at) else None, host


def _anchor(rank: Rank) -> dict[str, int]:
    return (
        rank.manifest.anchors[0] if rank.manifest.anchors else {"perf_counter_ns": 0, "time_ns": 0}
    )


def _less(times: IntArray, origin: int, clock: _Clock | None = None) -> IntArray:
    return (times if clock is None else clock(times)) - origin


def _label(process: Process) -> str:
    """Return what the tracks of a process are called."""
    if process.is_worker:
        return f"loader {process.header['loader']} worker {process.header['worker']}"
    return "training"


def _process(process: Process, made: PerfettoRank, clock: _Clock) -> Iterator[str]:
    name = _label(process)
    if not process.is_worker:
        yield from _steps(process, made, clock)
        yield from _values(process, made, clock)
    spans = process.records[~np.isin(process.records["stage"], _NO_SPANS)]
    place = spans["thread"].astype(np.int64)
    place[spans["stage"] == Stage.GPU] = _GPU
    place[spans["stage"] == Stage.COLLECTIVE] = _COLLECTIVES
    names = {0: name, _GPU: f"{name}, GPU", _COLLECTIVES: f"{name}, collectives"}
    for one in np.unique(place).tolist():
        yield from _track(
            process, spans[place == one], names.get(one, f"{name}, thread {one}"), made, clock
        )


def _steps(main: Process, made: PerfettoRank, clock: _Clock) -> Iterator[str]:
    """Return the recorded steps, with numbers that count those which were only counted."""
    found = all_boundaries(main)
    if found is None:
        return
    (tid,), named = made.tracks("steps")
    yield from named
    start, end = clock(found.start), clock(found.end)
    numbers = Counted.of(main).numbers(found.start)
    for number, begin, until in zip(numbers.tolist(), start.tolist(), end.tolist()):
        yield span_line(f'"name": "step {number}"', made.pid, tid, begin, until - begin)


def _values(main: Process, made: PerfettoRank, clock: _Clock) -> Iterator[str]:
    """Return the loss and other numbers of the training, each as a curve.

    Values that are not finite are left out, as JSON has none.
    """
    records = main.view(Stage.VALUE)
    values = np.ascontiguousarray(records["value"]).view(np.float64)
    for source, at, value in zip(
        records["source"].tolist(),
        clock(records["start"].astype(np.int64)).tolist(),
        values.tolist(),
    ):
        if math.isfinite(value):
            yield counter_line(main.names.get(source, "?"), made.pid, at, value)


def _track(
    process: Process,
    own: "np.ndarray[tuple[int], np.dtype[np.void]]",
    name: str,
    made: PerfettoRank,
    clock: _Clock,
) -> Iterator[str]:
    wall = np.maximum(own["wall"], 0)
    order = np.lexsort((-wall, own["start"]))
    own, wall = own[order], wall[order]
    start = clock(own["start"].astype(np.int64))
    lane = assign_lanes(start, wall)
    made.lost += int((lane == NOWHERE).sum())
    tids, named = made.tracks(name, int(lane.max(initial=0)) + 1)
    yield from named
    says = _Says(process)
    for record, begin, length, in_lane in zip(
        own.tolist(), start.tolist(), wall.tolist(), lane.tolist()
    ):
        if in_lane != NOWHERE:
            yield span_line(
                says.name(record), made.pid, tids[in_lane], begin, length, says.args(record)
            )


class _Says:
    """What the trace says of records of one process.

    A record: its fields in the order of RECORD_DTYPE.
    """

    def __init__(self, process: Process) -> None:
        self._process = process
        self._names: dict[tuple[int, int], str] = {}

    def name(self, record: tuple[int, ...]) -> str:
        _, _, _, _, _, _, extra, source, _, _, _, stage = record
        key = stage, extra if stage == Stage.GPU else source if stage in _NAMED else 0
        if key not in self._names:
            self._names[key] = f'"name": {json.dumps(self._name(*key))}'
        return self._names[key]

    def _name(self, stage: int, which: int) -> str:
        if stage == Stage.GPU:
            return Stage(which).name.lower()
        name = Stage(stage).name.lower()
        operation = self._process.names.get(which) if stage in _NAMED else None
        return (
            name
            if operation is None
            else operation
            if stage in (Stage.USER, Stage.COLLECTIVE)
            else f"{name}: {operation}"
        )

    def args(self, record: tuple[int, ...]) -> str:
        _, wall, cpu, _, nbytes, number, extra, source, _, flags, _, stage = record
        said = []
        if stage in _OF_BATCHES:
            said.append(
                f'"epoch": {number >> 32}, "batch": {number & 0xFFFFFFFF}, "loader": {source}'
            )
        if nbytes > 0 and stage in _WITH_BYTES:
            said.append(f'"bytes": {nbytes}')
        if stage == Stage.COLLECTIVE:
            said.append(
                f'"sequence": {number}' + (', "end": "unknown"' if wall == UNMEASURED else "")
            )
        elif stage == Stage.GARBAGE and extra > 0:
            said.append(f'"objects collected": {cpu}')
        elif cpu >= 0 and wall > 0 and stage in _WITH_CPU:
            said.append(f'"cpu_us": {cpu / 1000}')
        if flags & Flag.FAILED:
            said.append('"raised": true')
        return ", ".join(said)


@dataclass
class _Slice:
    """A function that was seen without a break.

    Attributes:
        lines: line -> samples.
    """

    key: _Key
    depth: int
    begin: int
    end: int
    lines: dict[int, int] = field(default_factory=dict)


def _code_lines(
    stretches: Sequence[Stretch], process: str, made: PerfettoRank, clock: _Clock
) -> Iterator[str]:
    """Return the lines of a process's track; none if nothing of its program was seen."""
    slices = sorted(_slices(stretches), key=lambda one: (one.begin, one.depth))
    if not slices:
        return
    (tid,), named = made.tracks(f"{process}, sampled code")
    yield from named
    begin = clock(np.array([one.begin for one in slices]))
    end = clock(np.array([one.end for one in slices]))
    for one, start, until in zip(slices, begin.tolist(), end.tolist()):
        yield span_line(
            f'"name": {json.dumps(one.key[1])}, "cat": "sampled"',
            made.pid,
            tid,
            start,
            until - start,
            _says(one),
        )


def _says(one: _Slice) -> str:
    samples = f'"samples": {sum(one.lines.values())}'
    if not one.key[0]:
        return samples
    line = max(one.lines, key=lambda at: one.lines[at])
    return f'"line": {json.dumps(f"{one.key[0]}:{line}")}, {samples}'


def _slices(stretches: Sequence[Stretch]) -> Iterator[_Slice]:
    order: dict[tuple[_Key, ...], int] = {}
    going: list[_Slice] = []
    for stretch in stretches:
        if going and going[0].end != stretch.begin:
            yield from going
            going = []
        at, whole = float(stretch.begin), sum(ns for _, _, ns in stretch.stacks)
        for chain, samples, ns in _in_order(stretch, order):
            begin = round(at)
            at += ns / max(whole, 1) * (stretch.end - stretch.begin)
            kept = 0
            while kept < min(len(chain), len(going)) and going[kept].key == chain[kept][0]:
                kept += 1
            yield from going[kept:]
            del going[kept:]
            for depth, (key, _) in enumerate(chain[kept:], kept):
                going.append(_Slice(key, depth, begin, begin))
            for slice_, (_, line) in zip(going, chain):
                slice_.end = round(at)
                slice_.lines[line] = slice_.lines.get(line, 0) + samples
    yield from going


def _in_order(
    stretch: Stretch, order: dict[tuple[_Key, ...], int]
) -> Iterator[tuple[_Chain, int, int]]:
    """Return functions, samples and ns, those beside each other that share callers.

    Args:
        order: chains of functions in the order in which they were first seen; is added to.
    """
    seen = [(_chain(frames), samples, ns) for frames, samples, ns in stretch.stacks]

    def place(chain: _Chain) -> list[int]:
        keys = tuple(key for key, _ in chain)
        return [order.setdefault(keys[: at + 1], len(order)) for at in range(len(keys))]

    places = [place(chain) for chain, _, _ in seen]
    for at in sorted(range(len(seen)), key=lambda at: places[at]):
        yield seen[at]


def _chain(frames: Sequence[StackFrame]) -> _Chain:
    """Return the program's functions of a stack, and below them what the last of them is in.

    That is a place of the pipeline, such as wait or backward, or else a library's function. Of a
    worker, which is a fork of the main process, it is what is inside of the making of a batch.
    """
    frames = inside_process(within_the_program(frames))
    stood = standing(frames)
    inside = stood.place in (*MAKING, IDLE)
    own = program_frames(frames[stood.inside :] if inside else frames)
    is_last = not program_frames(frames[stood.inside :])
    library = called(own[-1].below) if own else ""
    last = stood.place if stood.place != OTHER and is_last else library
    chain = [(frame.key, frame.line) for frame in own]
    return (*chain, *([(("", last), 0)] if last else []))
