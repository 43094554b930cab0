"""Where every nanosecond of each step went, and what the device and the loader did meanwhile.

What the device did comes first, then what the host did while the device stood still.
"""

import re
from dataclasses import dataclass

import numpy as np

from feedline.analysis.intervals import (
    NONE,
    BoolArray,
    IntArray,
    clip,
    common,
    covered,
    joined,
    length,
    union,
    without,
)
from feedline.analysis.traces.kernel_names import (
    communicates,
    communicates_on_host,
    is_named,
    of_kinds,
    on_device,
    waits_for_device,
)
from feedline.analysis.traces.trace_columns import Kind, Trace
from feedline.analysis.traces.trace_steps import (
    LOADER,
    NO_TRACK,
    PROFILER_STEP,
    Threads,
    TraceSteps,
    TraceWindow,
)
from feedline.profiler.message import Message, id_of

_NO_DEVICE_WORK = "the trace contains no device activity"
_NO_COMMUNICATION = "no communication ran"
#: Of Gpu, for reports.
FIGURES = (
    "span_s",
    "idle_pct",
    "compute_pct",
    "other_pct",
    "overlap_pct_of_comm",
    "exposed_comm_s",
    "exposed_comm_pct",
)
_SOUNDS_LIKE = re.compile(
    r"data.?load|load.?(data|batch)|(wait|get|fetch|next|read).{0,8}batch|input.?(pipe|wait)",
    re.IGNORECASE,
)
_MAX_HINTS = 3
#: Each moment belongs to the first of these that it is part of.
STEP_PARTS = (
    "compute",
    "waiting_for_rank",
    "exposed_transfer",
    "exposed_copy",
    "input",
    "synchronisation",
    "host_launch",
    "unexplained",
)
_ONE_RANK = Message(
    "waiting for other ranks cannot be separated from transfer here: exposed_transfer contains "
    "both",
    "one_rank",
)
_ON_HOST = (
    "the trace contains no device activity: compute is what operators did on the host "
    "outside the loader"
)


@dataclass(frozen=True, eq=False)
class DeviceWork:
    """When the device did what, as sets (intervals.py), ns.

    Each is the union over streams; they overlap each other.

    Attributes:
        compute: kernels other than communication.
        communication: kernels that are.
        copy: copies and sets.
        busy: any of them.
    """

    compute: IntArray
    communication: IntArray
    copy: IntArray
    busy: IntArray

    def clipped_to(self, window: TraceWindow) -> "DeviceWork":
        """Return what of it lies in a window."""
        cut = (
            clip(part, window.begin, window.end)
            for part in (self.compute, self.communication, self.copy, self.busy)
        )
        return DeviceWork(*cut)


@dataclass(frozen=True)
class GpuFigures:
    """Figures of all devices in the trace, in the steps.

    Percentages are of the span; None where ``reasons`` says why.

    Attributes:
        span_ns: the steps; without any, the whole trace. 0: the trace contains no device activity.
        busy_ns: something ran.
        compute_ns: a kernel other than communication ran.
        communication_ns: communication ran.
        hidden_ns: both did.
    """

    span_ns: int = 0
    busy_ns: int = 0
    compute_ns: int = 0
    communication_ns: int = 0
    hidden_ns: int = 0

    @property
    def span_s(self) -> float | None:
        return self.span_ns / 1e9 if self.span_ns else None

    @property
    def idle_pct(self) -> float | None:
        return self._pct(self.span_ns - self.busy_ns)

    @property
    def compute_pct(self) -> float | None:
        return self._pct(self.compute_ns)

    @property
    def other_pct(self) -> float | None:
        """Busy, but no kernel computed: communication, copies, sets."""
        return self._pct(self.busy_ns - self.compute_ns)

    @property
    def overlap_pct_of_comm(self) -> float | None:
        """Communication during which a kernel computed; percent of all communication."""
        return 100 * self.hidden_ns / self.communication_ns if self.communication_ns else None

    @property
    def exposed_comm_s(self) -> float | None:
        """Communication during which no kernel computed."""
        return (self.communication_ns - self.hidden_ns) / 1e9 if self.span_ns else None

    @property
    def exposed_comm_pct(self) -> float | None:
        return self._pct(self.communication_ns - self.hidden_ns)

    @property
    def reasons(self) -> dict[str, str]:
        """Why a figure is None."""
        if not self.span_ns:
            return dict.fromkeys(FIGURES, _NO_DEVICE_WORK)
        return {} if self.communication_ns else {"overlap_pct_of_comm": _NO_COMMUNICATION}

    def _pct(self, ns: int) -> float | None:
        return 100 * ns / self.span_ns if self.span_ns else None


def device_work(trace: Trace) -> DeviceWork:
    """Find when the devices of a trace did what."""
    work = on_device(trace)
    communication = communicates(trace) & work
    compute = of_kinds(trace, Kind.KERNEL) & work & ~communication
    computed, communicated, copied = (
        _spans(trace, mask) for mask in (compute, communication, work & ~compute & ~communication)
    )
    return DeviceWork(computed, communicated, copied, joined(computed, communicated, copied))


def _spans(trace: Trace, chosen: BoolArray) -> IntArray:
    """Return the moments of these events: a set, ns."""
    start = trace.events["start"][chosen]
    return union(start, start + trace.events["wall"][chosen])


def gpu_figures(work: DeviceWork, window: TraceWindow) -> GpuFigures:
    """Return the figures of what a device did in a window."""
    if not len(work.busy):
        return GpuFigures()
    seen = work.clipped_to(window)
    hidden = common(seen.communication, seen.compute)
    return GpuFigures(
        window.ns, *(length(part) for part in (seen.busy, seen.compute, seen.communication, hidden))
    )


@dataclass(frozen=True)
class Input:
    """What the loader cost. None where ``reasons`` says why.

    Attributes:
        window_ns: what percentages are of: the steps; where there are none, the whole trace.
        idle_ns: within the window, no device worked.
        loader_ns: within the window, the main thread waited for a batch; None: the trace does not
            say when it does.
        stall_ns: both at once; None: as ``loader_ns``, or no device is in the trace.
        calls: batches whose wait began within the window.
        annotations: names of the ranges that were taken for it.
        reasons: field of the report -> why it is None.
    """

    window_ns: int
    idle_ns: int
    loader_ns: int | None
    stall_ns: int | None
    calls: int
    annotations: tuple[str, ...]
    reasons: dict[str, str]

    @property
    def loader_pct(self) -> float | None:
        return self._pct(self.loader_ns)

    @property
    def stall_pct(self) -> float | None:
        return self._pct(self.stall_ns)

    @property
    def idle_explained_pct(self) -> float | None:
        """Percent of the device's idle time in the window that was input stall."""
        return (
            100 * self.stall_ns / self.idle_ns
            if self.stall_ns is not None and self.idle_ns
            else None
        )

    @property
    def speedup_ceiling(self) -> float | None:
        """How many times faster the same work would be with batches that are always ready.

        It is window / (window - stall).
        """
        if self.stall_ns is None or self.stall_ns >= self.window_ns:
            return None
        return self.window_ns / (self.window_ns - self.stall_ns)

    def _pct(self, ns: int | None) -> float | None:
        return 100 * ns / self.window_ns if ns is not None and self.window_ns else None


def find_waits(trace: Trace, who: Threads) -> IntArray:
    """Find when the main thread waited for a batch: a set, ns."""
    mine = _waits(trace, who)
    start = trace.events["start"][mine]
    return union(start, start + trace.events["wall"][mine])


def find_input(
    trace: Trace, who: Threads, window: TraceWindow, waits: IntArray, busy: IntArray
) -> Input:
    """Sum up the waits for batches.

    Args:
        trace: of a rank.
        who: its threads.
        window: what the figures are of.
        waits: of ``find_waits``.
        busy: when a device worked: a set, ns.
    """
    waits, busy = (clip(moments, window.begin, window.end) for moments in (waits, busy))
    mine = _waits(trace, who)
    calls = int((mine & window.began(trace.events)).sum())
    names = tuple(trace.names[number] for number in np.unique(trace.events["name"][mine]))
    idle = window.ns - length(busy)
    if not names:
        why = _why_not(trace, who)
        return Input(
            window.ns,
            idle,
            None,
            None,
            0,
            (),
            dict.fromkeys(("loader_pct", "stall_pct", "speedup_ceiling"), why),
        )
    if not of_kinds(trace, Kind.KERNEL, Kind.COPY, Kind.SET).any():
        why = (
            f"{_NO_DEVICE_WORK}, so it is unknown whether the device was idle while the main "
            f"thread waited for its loader"
        )
        stalled = dict.fromkeys(("stall_pct", "speedup_ceiling"), why)
        return Input(window.ns, idle, length(waits), None, calls, names, stalled)
    return Input(window.ns, idle, length(waits), length(without(waits, busy)), calls, names, {})


def _waits(trace: Trace, who: Threads) -> BoolArray:
    if who.main == NO_TRACK:
        return np.zeros(len(trace.events), bool)
    return (
        is_named(trace, LOADER)
        & of_kinds(trace, Kind.ANNOTATION, Kind.OPERATOR)
        & (trace.events["track"] == who.main)
    )


def _why_not(trace: Trace, who: Threads) -> str:
    if who.main == NO_TRACK:
        return "the trace contains no host threads"
    own = of_kinds(trace, Kind.ANNOTATION) & (trace.events["track"] == who.main)
    similar = [
        name
        for number in np.unique(trace.events["name"][own])
        if _SOUNDS_LIKE.search(name := trace.names[number])
    ]
    hint = f" (perhaps this is one: {', '.join(similar[:_MAX_HINTS])})" if similar else ""
    return (
        f"the trace has no DataLoader range on the main thread, so waiting for batches cannot "
        f"be measured{hint}"
    )


@dataclass(frozen=True, eq=False)
class Activity:
    """When each part could be the reason that time passed.

    They are sets (intervals.py), ns, that overlap each other.

    Attributes:
        compute, communication, copy: of the device (DeviceWork); without any, operators and the
            ranges around collectives.
        input: the main thread waited for a batch.
        synchronisation: a thread that works for the training stood in a call that waits for the
            device.
        host: such a thread ran operators, launched work, ran Python functions, or was within a
            named part of a step.
    """

    compute: IntArray
    communication: IntArray
    copy: IntArray
    input: IntArray
    synchronisation: IntArray
    host: IntArray


@dataclass(frozen=True, eq=False)
class StepBudget:
    """Steps x parts of one rank.

    Attributes:
        edges: int64 [n + 1], ns: the steps; without any, begin and end of the trace.
        parts: name in PARTS -> int64 [n], ns; they sum to the steps' lengths.
        notes: what has to be known to read it, in sentences.
    """

    edges: IntArray
    parts: dict[str, IntArray]
    notes: tuple[str, ...]

    @property
    def shares(self) -> dict[str, float]:
        """Name in PARTS -> share of all steps together; they sum to 1. Empty: no time passed."""
        total = int(self.edges[-1] - self.edges[0]) if len(self.edges) else 0
        return {name: int(part.sum()) / total for name, part in self.parts.items()} if total else {}


def find_activity(
    trace: Trace, who: Threads, steps: TraceSteps, work: DeviceWork, waits: IntArray
) -> Activity:
    """Collect what went on, as sets.

    Args:
        trace: of a rank.
        who: its threads.
        steps: of the trace.
        work: of its device.
        waits: of ``find_waits``: when the main thread waited for a batch.
    """
    events = trace.events
    mine = np.isin(events["track"], who.working)
    main = events["track"] == who.main
    calls = of_kinds(trace, Kind.RUNTIME)
    host = (mine & (calls | of_kinds(trace, Kind.OPERATOR))) | (
        main & (of_kinds(trace, Kind.PYTHON) | _parts_of_a_step(trace, steps))
    )
    compute, communication = work.compute, work.communication
    if not len(work.busy):
        communication = _spans(trace, communicates_on_host(trace))
        compute = without(
            _spans(trace, mine & of_kinds(trace, Kind.OPERATOR) & ~is_named(trace, PROFILER_STEP)),
            waits,
        )
    return Activity(
        compute,
        communication,
        work.copy,
        waits,
        _spans(trace, mine & waits_for_device(trace)),
        _spans(trace, host),
    )


def split_steps(
    act: Activity, begin: IntArray, end: IntArray, waiting: IntArray = NONE
) -> dict[str, IntArray]:
    """Split each window [begin, end) into parts, int64 [n], ns, which sum to its length.

    Args:
        act: what went on.
        begin: int64 [n], ns.
        end: int64 [n], ns.
        waiting: when communication only waited for a late rank: a set, ns. Time in it without
            communication does not count.
    """
    layers = (
        act.compute,
        common(waiting, act.communication),
        act.communication,
        act.copy,
        act.input,
        act.synchronisation,
        act.host,
    )
    parts, taken, before = {}, NONE, np.zeros(len(begin), np.int64)
    for name, layer in zip(STEP_PARTS, layers):
        taken = joined(taken, layer)
        after = covered(taken, begin, end)
        parts[name], before = after - before, after
    return {**parts, STEP_PARTS[-1]: end - begin - before}


def with_waiting(
    budget: StepBudget, hidden: IntArray, communication: IntArray, waiting: IntArray
) -> StepBudget:
    """Return the budget once other ranks are known: waiting for them moves out of exposed_transfer.

    Args:
        budget: the budget of the rank alone.
        hidden: when communication ran behind compute: a set, ns.
        communication: when it ran: a set, ns.
        waiting: when it only waited for a late rank: a set, ns.
    """
    exposed = without(common(waiting, communication), hidden)
    moved = covered(exposed, budget.edges[:-1], budget.edges[1:])
    known = {
        "waiting_for_rank": moved,
        "exposed_transfer": budget.parts["exposed_transfer"]
        + budget.parts["waiting_for_rank"]
        - moved,
    }
    return StepBudget(
        budget.edges,
        {**budget.parts, **known},
        tuple(note for note in budget.notes if id_of(note) != _ONE_RANK.id),
    )


def budget_of_rank(
    steps: TraceSteps, window: TraceWindow, act: Activity, work: DeviceWork
) -> StepBudget:
    """Make the budget of a rank on its own."""
    notes = []
    edges = steps.edges
    if not len(steps):
        edges = np.array([window.begin, window.end] if window.ns else [], np.int64)
        notes.append(steps.how)
    if len(clip(act.communication, window.begin, window.end)):
        notes.append(_ONE_RANK)
    if not len(work.busy):
        notes.append(_ON_HOST)
    return StepBudget(edges, split_steps(act, edges[:-1], edges[1:]), tuple(notes))


def _parts_of_a_step(trace: Trace, steps: TraceSteps) -> BoolArray:
    """Tell which annotations lie within one step: bool [n].

    Those that hold a whole one say nothing of where its time went.
    """
    begin, end = trace.events["start"], trace.events["start"] + trace.events["wall"]
    inside = (
        of_kinds(trace, Kind.ANNOTATION)
        & ~is_named(trace, LOADER)
        & ~is_named(trace, PROFILER_STEP)
    )
    if not len(steps):
        return np.zeros(len(begin), bool)
    step = np.searchsorted(steps.edges, begin, "right") - 1
    lasts = steps.edges[np.minimum(step + 1, len(steps.edges) - 1)]
    whole = (end - begin) >= np.diff(steps.edges)[np.clip(step, 0, len(steps) - 1)]
    return np.asarray(inside & (step >= 0) & (end <= lasts) & ~whole, bool)
