"""Everything that one rank's trace says by itself, small enough to be sent from one process to another."""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from feedline.analysis.intervals import IntArray, common
from feedline.analysis.traces.basis import Basis, basis
from feedline.analysis.traces.budget import PARTS, Activity, Budget, activity, of_trace, split
from feedline.analysis.traces.calls import CallRow, Calls, calls
from feedline.analysis.traces.columns import CollectiveArgs, Kind, Trace, Track
from feedline.analysis.traces.gpu import DeviceWork, Gpu, device_work, gpu
from feedline.analysis.traces.input import Input, find_input, loading
from feedline.analysis.traces.kinds_of_work import communicates, extent, of_kinds
from feedline.analysis.traces.steps import Steps, find_steps
from feedline.analysis.traces.tables import CopyRow, KernelRow, copies, kernels
from feedline.analysis.traces.threads import UNKNOWN, Threads, threads

_MOST_ROWS = 1000  # of a table: a trace with shapes in its names would make one for each

_COLLECTIVE_DTYPE = np.dtype(
    [
        ("start", "<i8"),  # ns since RankTrace.origin_ns: the kernel began; without a device, the host's range
        ("end", "<i8"),
        ("launched", "<i8"),  # ns: the host told the device to; -1: the trace does not say
        ("name", "<i4"),  # index into names: of the kernel
        ("said", "<i4"),  # index into names: the range around its launch ("nccl:all_to_all"); -1: none
        ("args", "<i4"),  # index into args; -1: nothing is known of it but its name
        ("stream", "<i4"),  # index into streams
    ]
)


@dataclass(frozen=True, eq=False)
class CollectivesOfTrace:
    """The collectives of a rank, in order of start.

    Attributes:
        table: COLLECTIVE_DTYPE [m].
        before: int64 [m, parts of a budget], ns: where the time went since the last of those before it had ended, in order of PARTS.
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
        basis: the window that all figures below are of, but for collectives, which are compared over the whole trace.
        gpu: of all devices together.
        calls: operators, ranges and Python functions of the host.
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
    basis: Basis
    gpu: Gpu
    steps: Steps
    input: Input
    budget: Budget
    kernels: list[KernelRow]
    copies: list[CopyRow]
    calls: list[CallRow]
    collectives: CollectivesOfTrace


def summarise(trace: Trace) -> RankTrace:
    """Work out all figures of a rank. The trace is not needed afterwards."""
    who = threads(trace)
    work = device_work(trace)
    steps = find_steps(trace, who)
    waits = loading(trace, who)
    act = activity(trace, who, steps, work, waits)
    window = basis(trace, steps)
    called = calls(trace, who, window)
    whole = gpu(work, window)
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
        trace.tracks[who.main] if who.main != UNKNOWN else None,
        window,
        whole,
        steps,
        find_input(trace, who, window, waits, work.busy),
        of_trace(steps, window, act, work),
        kernels(trace, who, called, whole.busy_ns, window)[:_MOST_ROWS],
        copies(trace, window),
        called.rows[:_MOST_ROWS],
        _collectives(trace, who, called, act, work),
    )


def _collectives(trace: Trace, who: Threads, called: Calls, act: Activity, work: DeviceWork) -> CollectivesOfTrace:
    events = trace.events
    rows = np.flatnonzero(communicates(trace))
    if not len(work.busy):  # gloo on a CPU: all that there is are the ranges around it
        said = np.array([name.startswith(("gloo:", "mpi:", "ucc:")) for name in trace.names] or [False])
        rows = np.flatnonzero(of_kinds(trace, Kind.ANNOTATION) & said[events["name"]])
    mine, launcher = events[rows], who.launcher[rows]
    launched = launcher >= 0
    table = np.zeros(len(rows), _COLLECTIVE_DTYPE)
    table["start"], table["end"] = mine["start"], mine["start"] + mine["wall"]
    table["launched"] = np.where(launched, events["start"][launcher], -1)
    args = np.where((mine["collective"] < 0) & launched, called.collective[launcher], mine["collective"])
    names = np.stack([mine["name"].astype(np.int64), np.where(launched, called.backend[launcher], -1)])
    used = np.unique(names[names >= 0])
    table["name"], table["said"] = np.where(names >= 0, np.searchsorted(used, names), -1)
    known = np.unique(args[args >= 0])
    table["args"] = np.where(args >= 0, np.searchsorted(known, args), -1)
    streams = np.unique(mine["track"])
    table["stream"] = np.searchsorted(streams, mine["track"])
    return CollectivesOfTrace(
        table,
        _before(table, act, extent(trace)[0]),
        common(work.communication, work.compute),
        [trace.names[name] for name in used],
        [trace.collectives[number] for number in known],
        [trace.tracks[track] for track in streams],
    )


def _before(table: npt.NDArray[np.void], act: Activity, first: int) -> IntArray:
    """Where the time went between the last end before each collective and its start."""
    ended = np.append(first, np.maximum.accumulate(table["end"]))[: len(table)]
    parts = split(act, np.minimum(ended, table["start"]), table["start"])
    return np.stack([parts[name] for name in PARTS], 1)
