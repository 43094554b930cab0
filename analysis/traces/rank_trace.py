"""Everything that one rank's trace says by itself, its kernels and copies in tables."""

import re
from collections.abc import Set
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from feedline.analysis.intervals import IntArray, common, length, union
from feedline.analysis.traces.calls import CallRow, HostCalls, sum_calls
from feedline.analysis.traces.kernel_names import (
    Copy,
    communicates,
    communicates_on_host,
    extent,
    of_kinds,
    present_numbers,
    waits_for_device,
)
from feedline.analysis.traces.launching import Launching
from feedline.analysis.traces.trace_budget import (
    STEP_PARTS,
    Activity,
    DeviceWork,
    GpuFigures,
    Input,
    StepBudget,
    budget_of_rank,
    device_work,
    find_activity,
    find_input,
    find_waits,
    gpu_figures,
    split_steps,
)
from feedline.analysis.traces.trace_columns import CollectiveArgs, Kind, Trace, Track
from feedline.analysis.traces.trace_steps import (
    NO_TRACK,
    Threads,
    TraceSteps,
    TraceWindow,
    find_steps,
    find_threads,
)

_COPY = re.compile(r"([HDPA])(?:ost|evice|rray)?\s?(?:to|2)\s?([HDPA])", re.IGNORECASE)
_MEMORY_KINDS = {
    "pageable": "pageable",
    "pinned": "pinned",
    "page-locked": "pinned",
    "managed": "managed",
    "unified": "managed",
}

_MOST_TIME_SHARE = 0.9  # of a kernel's time, from which on the collective that it is of is named
_MAX_TABLE_ROWS = 1000  # of a table: a trace with shapes in its names would make one for each
_COLLECTIVE_DTYPE = np.dtype(
    [
        (
            "start",
            "<i8",
        ),  # ns since RankTrace.origin_ns: the kernel began; without a device, the host's range
        ("end", "<i8"),
        ("launched", "<i8"),  # ns: the host told the device to; -1: the trace does not say
        ("name", "<i4"),  # index into names: of the kernel
        (
            "said",
            "<i4",
        ),  # index into names: the range around its launch ("nccl:all_to_all"); -1: none
        ("args", "<i4"),  # index into args; -1: nothing is known of it but its name
        ("stream", "<i4"),  # index into streams
    ]
)


@dataclass(frozen=True)
class KernelRow:
    """All kernels of one name.

    Attributes:
        total_ns: what of their durations lies in the steps, summed; those that overlap count twice.
        busy_share: of the time in which the device was busy; what ran at once counts once.
        operator: which launched most of it; of communication, the range of nearly all of it
            ("nccl:all_reduce"); "": the trace does not say, or several did.
    """

    name: str
    count: int
    total_ns: int
    busy_share: float
    communication: bool
    operator: str


@dataclass(frozen=True)
class _CopyRow:
    """All copies of one kind.

    Attributes:
        which: direction and memory.
        total_ns: what of their durations lies in the steps, summed.
        nbytes: of those whose bytes are known; None: of none.
        known_ns: how long these took, those that lie across an edge of the steps as a whole.
    """

    which: Copy
    count: int
    total_ns: int
    nbytes: int | None
    known_ns: int

    @property
    def gb_per_s(self) -> float | None:
        return self.nbytes / self.known_ns if self.nbytes is not None and self.known_ns else None


def _kernels(
    trace: Trace, who: Threads, called: HostCalls, busy_ns: int, window: TraceWindow
) -> list[KernelRow]:
    """Make one row a name, the longest first, of what ran in a window."""
    rows = np.flatnonzero(of_kinds(trace, Kind.KERNEL) & window.touches(trace.events))
    if not len(rows):
        return []
    names, wall = trace.events["name"][rows], window.overlap_ns(trace.events[rows])
    launcher = who.launcher[rows]
    by = np.where(called.backend >= 0, called.backend, called.operator)
    operator = np.where(launcher >= 0, by[launcher], -1)
    speaks = set(trace.events["name"][communicates(trace)].tolist())
    mostly = _mostly(names, operator, wall, speaks)
    ran = _ran(names, np.maximum(trace.events["start"][rows], window.begin), wall)
    table = []
    for name, count, total in zip(*_summed(names, wall)):
        label = trace.names[mostly[name]] if mostly[name] >= 0 else ""
        table.append(
            KernelRow(
                trace.names[name],
                count,
                total,
                ran[name] / busy_ns if busy_ns else 0.0,
                name in speaks,
                label,
            )
        )
    return sorted(table, key=lambda row: -row.total_ns)


def _copies(trace: Trace, window: TraceWindow) -> list[_CopyRow]:
    """Make one row a direction and kind of memory, the longest first, of what ran in a window."""
    mine = trace.events[of_kinds(trace, Kind.COPY) & window.touches(trace.events)]
    kinds = {name: _copy_of(trace.names[name]) for name in np.unique(mine["name"]).tolist()}
    table = []
    for which in sorted(set(kinds.values())):
        chosen = mine[
            np.isin(mine["name"], [name for name, kind in kinds.items() if kind == which])
        ]
        known = chosen["nbytes"] >= 0
        nbytes = int(chosen["nbytes"][known].sum()) if known.any() else None
        table.append(
            _CopyRow(
                which,
                len(chosen),
                int(window.overlap_ns(chosen).sum()),
                nbytes,
                int(chosen["wall"][known].sum()),
            )
        )
    return sorted(table, key=lambda row: -row.total_ns)


def _ran(names: IntArray, start: IntArray, wall: IntArray) -> dict[int, int]:
    """Map each name to the nanoseconds in which one of its kernels ran, on any device or stream."""
    order = np.argsort(names, kind="stable")
    each, first = np.unique(names[order], return_index=True)
    return {
        int(name): length(union(start[mine], start[mine] + wall[mine]))
        for name, mine in zip(each, np.split(order, first[1:]))
    }


def _summed(keys: IntArray, wall: IntArray) -> tuple[list[int], list[int], list[int]]:
    """Return the distinct keys, how often each is there, and the sum of its times."""
    each, place, count = np.unique(keys, return_inverse=True, return_counts=True)
    return each.tolist(), count.tolist(), np.bincount(place, wall).astype(np.int64).tolist()


def _mostly(
    names: IntArray, operator: IntArray, wall: IntArray, speaks: Set[int]
) -> dict[int, int]:
    """Map each name of a kernel to the operator with most of its time.

    -1: several collectives share a kernel.

    Args:
        names: int64 [n]: of kernels.
        operator: int64 [n]: that launched each.
        wall: int64 [n], ns.
        speaks: names of kernels that communicate.
    """
    pairs, _, total = _summed(names.astype(np.int64) << 32 | (operator + 1), wall)
    best: dict[int, tuple[int, int]] = {}
    for pair, time in zip(pairs, total):
        name, by = pair >> 32, (pair & 0xFFFFFFFF) - 1
        best[name] = max(best.get(name, (-1, -1)), (time, by))
    each, _, sums = _summed(names, wall)
    whole = dict(zip(each, sums))
    return {
        name: by if name not in speaks or time >= _MOST_TIME_SHARE * whole[name] else -1
        for name, (time, by) in best.items()
    }


@dataclass(frozen=True, eq=False)
class _CollectivesOfTrace:
    """The collectives of a rank, in order of start.

    Attributes:
        table: _COLLECTIVE_DTYPE [m].
        before: int64 [m, parts of a budget], ns: where the time went since the last of those before
            it had ended, in order of PARTS.
        hidden: when one ran while a kernel computed: a set (intervals.py), ns.
        names, args, streams: what the table refers to.
    """

    table: npt.NDArray[np.void]
    before: IntArray
    hidden: IntArray
    names: list[str]
    args: list[CollectiveArgs]
    streams: list[Track]


@dataclass(frozen=True, eq=False)
class RankTrace:
    """One rank by itself.

    Attributes:
        source, maker, rank, world_size, origin_ns, groups, devices, notes: as in Trace.
        events: how many the trace held.
        begin_ns, end_ns: first start and last end of what host and device did, since origin_ns.
        main: the thread that makes the steps; None: the trace holds no host.
        basis: the window that all figures below are of, but for collectives, which are compared
            over the whole trace.
        gpu: of all devices together.
        calls: operators, ranges and Python functions of the host.
        launching: how the host launches work.
        waits_in: the call in which the host waits for the device longest; "": in none.
    """

    source: str
    maker: str
    rank: int | None
    world_size: int | None
    origin_ns: int
    groups: dict[str, tuple[int, ...]]
    devices: dict[int, str]
    notes: list[str]
    events: int
    begin_ns: int
    end_ns: int
    main: Track | None
    basis: TraceWindow
    gpu: GpuFigures
    steps: TraceSteps
    input: Input
    budget: StepBudget
    kernels: list[KernelRow]
    copies: list[_CopyRow]
    calls: list[CallRow]
    collectives: _CollectivesOfTrace
    launching: Launching
    waits_in: str


def summarise(trace: Trace) -> RankTrace:
    """Work out all figures of a rank.

    The trace is not needed afterwards.
    """
    who = find_threads(trace)
    work = device_work(trace)
    steps = find_steps(trace, who)
    waits = find_waits(trace, who)
    act = find_activity(trace, who, steps, work, waits)
    window = _window_of(trace, steps)
    called = sum_calls(trace, who, window)
    whole = gpu_figures(work, window)
    return RankTrace(
        trace.source,
        trace.maker,
        trace.rank,
        trace.world_size,
        trace.origin_ns,
        trace.groups,
        trace.devices,
        trace.notes,
        len(trace.events),
        *extent(trace),
        trace.tracks[who.main] if who.main != NO_TRACK else None,
        window,
        whole,
        steps,
        find_input(trace, who, window, waits, work.busy),
        budget_of_rank(steps, window, act, work),
        _kernels(trace, who, called, whole.busy_ns, window)[:_MAX_TABLE_ROWS],
        _copies(trace, window),
        called.rows[:_MAX_TABLE_ROWS],
        _collectives(trace, who, called, act, work),
        Launching.of(trace.names[name] for name in present_numbers(trace.events["name"])),
        _waits_in(trace, who, window),
    )


def _waits_in(trace: Trace, who: Threads, window: TraceWindow) -> str:
    """Return the call in which threads that work for the training wait for the device longest."""
    mine = np.flatnonzero(waits_for_device(trace) & np.isin(trace.events["track"], who.working))
    if not len(mine):
        return ""
    names, _, total = _summed(trace.events["name"][mine], window.overlap_ns(trace.events[mine]))
    return trace.names[names[total.index(max(total))]]


def _collectives(
    trace: Trace, who: Threads, called: HostCalls, act: Activity, work: DeviceWork
) -> _CollectivesOfTrace:
    events = trace.events
    rows = np.flatnonzero(communicates(trace))
    if not len(work.busy):
        rows = np.flatnonzero(communicates_on_host(trace))
    mine, launcher = events[rows], who.launcher[rows]
    launched = launcher >= 0
    table = np.zeros(len(rows), _COLLECTIVE_DTYPE)
    table["start"], table["end"] = mine["start"], mine["start"] + mine["wall"]
    table["launched"] = np.where(launched, events["start"][launcher], -1)
    args = np.where(
        (mine["collective"] < 0) & launched, called.collective[launcher], mine["collective"]
    )
    names = np.stack(
        [mine["name"].astype(np.int64), np.where(launched, called.backend[launcher], -1)]
    )
    used = np.unique(names[names >= 0])
    table["name"], table["said"] = np.where(names >= 0, np.searchsorted(used, names), -1)
    known = np.unique(args[args >= 0])
    table["args"] = np.where(args >= 0, np.searchsorted(known, args), -1)
    streams = np.unique(mine["track"])
    table["stream"] = np.searchsorted(streams, mine["track"])
    return _CollectivesOfTrace(
        table,
        _before(table, act, extent(trace)[0]),
        common(act.communication, act.compute),
        [trace.names[name] for name in used],
        [trace.collectives[number] for number in known],
        [trace.tracks[track] for track in streams],
    )


def _before(table: npt.NDArray[np.void], act: Activity, first: int) -> IntArray:
    """Return where the time went between the last end before each collective and its start."""
    ended = np.append(first, np.maximum.accumulate(table["end"]))[: len(table)]
    parts = split_steps(act, np.minimum(ended, table["start"]), table["start"])
    return np.stack([parts[name] for name in STEP_PARTS], 1)


def _copy_of(name: str) -> Copy:
    """Read the name of a copy, as in ``Memcpy HtoD (Pageable -> Device)``."""
    match = _COPY.search(name)
    direction = f"{match[1].upper()}to{match[2].upper()}" if match else ""
    lower = name.lower()
    return Copy(
        direction,
        next((meant for word, meant in _MEMORY_KINDS.items() if word in lower), "")
        if "H" in direction
        else "",
    )


def _window_of(trace: Trace, steps: TraceSteps) -> TraceWindow:
    """Return where the steps begin and end; without any, where the trace does."""
    if len(steps):
        return TraceWindow(int(steps.edges[0]), int(steps.edges[-1]), len(steps))
    return TraceWindow(*extent(trace), 0)
