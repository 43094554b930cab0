"""Where every nanosecond of each step went. What the device did comes first, then what the host did while the device stood still."""

from dataclasses import dataclass

import numpy as np

from feedline.analysis.intervals import NONE, BoolArray, IntArray, common, covered, joined, without
from feedline.analysis.traces.basis import Basis
from feedline.analysis.traces.columns import Kind, Trace
from feedline.analysis.traces.gpu import DeviceWork, spans
from feedline.analysis.traces.kinds_of_work import named, of_kinds, synchronises
from feedline.analysis.traces.steps import Steps
from feedline.analysis.traces.threads import LOADER, PROFILER_STEP, Threads
from feedline.profiler.message import Message, id_of

#: Each moment belongs to the first of these that it is part of.
PARTS = ("compute", "waiting_for_rank", "exposed_transfer", "exposed_copy", "input", "synchronisation", "host_launch", "unexplained")
ONE_RANK = Message("waiting for other ranks cannot be separated from transfer here: exposed_transfer contains both", "one_rank")
_ON_HOST = "the trace contains no device activity: compute is what operators did on the host outside the loader"


@dataclass(frozen=True, eq=False)
class Activity:
    """When each part could be the reason that time passed: sets (intervals.py), ns, that overlap each other.

    Attributes:
        compute, communication, copy: of the device (gpu.py).
        input: the main thread waited for a batch.
        synchronisation: a thread that works for the training stood in a call that waits for the device.
        host: such a thread ran operators, launched work, ran Python functions, or was within a named part of a step.
    """

    compute: IntArray
    communication: IntArray
    copy: IntArray
    input: IntArray
    synchronisation: IntArray
    host: IntArray


@dataclass(frozen=True, eq=False)
class Budget:
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


def activity(trace: Trace, who: Threads, steps: Steps, work: DeviceWork, waits: IntArray) -> Activity:
    """What went on, as sets.

    Args:
        waits: when the main thread waited for a batch (input.py).
    """
    events = trace.events
    mine = np.isin(events["track"], who.working)
    main = events["track"] == who.main
    calls = of_kinds(trace, Kind.RUNTIME)
    waiting = np.array([synchronises(name) for name in trace.names] or [False])[events["name"]] & (calls | of_kinds(trace, Kind.SYNC))
    host = (mine & (calls | of_kinds(trace, Kind.OPERATOR))) | (main & (of_kinds(trace, Kind.PYTHON) | _parts_of_a_step(trace, steps)))
    compute = work.compute
    if not len(work.busy):
        compute = without(spans(trace, mine & of_kinds(trace, Kind.OPERATOR) & ~named(trace, PROFILER_STEP)), waits)
    return Activity(compute, work.communication, work.copy, waits, spans(trace, mine & waiting), spans(trace, host))


def split(act: Activity, begin: IntArray, end: IntArray, waiting: IntArray = NONE) -> dict[str, IntArray]:
    """Each part of each window [begin, end), int64 [n], ns; they sum to its length.

    Args:
        waiting: when communication only waited for a late rank: a set, ns. Time in it without communication does not count.
    """
    layers = (act.compute, common(waiting, act.communication), act.communication, act.copy, act.input, act.synchronisation, act.host)
    parts, taken, before = {}, NONE, np.zeros(len(begin), np.int64)
    for name, layer in zip(PARTS, layers):
        taken = joined(taken, layer)
        after = covered(taken, begin, end)
        parts[name], before = after - before, after
    return {**parts, PARTS[-1]: end - begin - before}


def with_waiting(one: Budget, hidden: IntArray, communication: IntArray, waiting: IntArray) -> Budget:
    """The same budget once other ranks are known: what was waiting for them moves out of exposed_transfer.

    Args:
        hidden: when communication ran behind compute: a set, ns.
        communication: when it ran: a set, ns.
        waiting: when it only waited for a late rank: a set, ns.
    """
    exposed = without(common(waiting, communication), hidden)
    moved = covered(exposed, one.edges[:-1], one.edges[1:])
    known = {"waiting_for_rank": moved, "exposed_transfer": one.parts["exposed_transfer"] + one.parts["waiting_for_rank"] - moved}
    return Budget(one.edges, {**one.parts, **known}, tuple(note for note in one.notes if id_of(note) != ONE_RANK.id))


def of_trace(steps: Steps, window: Basis, act: Activity, work: DeviceWork) -> Budget:
    """The budget of a rank on its own."""
    notes = []
    edges = steps.edges
    if not len(steps):
        edges = np.array([window.begin, window.end] if window.ns else [], np.int64)
        notes.append(steps.how)
    if len(work.within(window).communication):
        notes.append(ONE_RANK)
    if not len(work.busy):
        notes.append(_ON_HOST)
    return Budget(edges, split(act, edges[:-1], edges[1:]), tuple(notes))


def _parts_of_a_step(trace: Trace, steps: Steps) -> BoolArray:
    """Annotations that lie within one step: those that hold a whole one say nothing of where its time went."""
    begin, end = trace.events["start"], trace.events["start"] + trace.events["wall"]
    inside = of_kinds(trace, Kind.ANNOTATION) & ~named(trace, LOADER) & ~named(trace, PROFILER_STEP)
    if not len(steps):
        return np.zeros(len(begin), bool)
    step = np.searchsorted(steps.edges, begin, "right") - 1
    lasts = steps.edges[np.minimum(step + 1, len(steps.edges) - 1)]
    whole = (end - begin) >= np.diff(steps.edges)[np.clip(step, 0, len(steps) - 1)]
    return np.asarray(inside & (step >= 0) & (end <= lasts) & ~whole, bool)
