"""How long the training stood and waited for its next batch: the main thread in the loader's ``__next__`` while the device had no work."""

import re
from dataclasses import dataclass

import numpy as np

from feedline.analysis.intervals import BoolArray, IntArray, clip, length, union, without
from feedline.analysis.traces.basis import Basis
from feedline.analysis.traces.columns import Kind, Trace
from feedline.analysis.traces.gpu import NO_WORK
from feedline.analysis.traces.kinds_of_work import named, of_kinds
from feedline.analysis.traces.threads import LOADER, UNKNOWN, Threads

_SOUNDS_LIKE = re.compile(r"data.?load|load.?(data|batch)|(wait|get|fetch|next|read).{0,8}batch|input.?(pipe|wait)", re.IGNORECASE)
_SHOWN = 3


@dataclass(frozen=True)
class Input:
    """What the loader cost. None where ``reasons`` says why.

    Attributes:
        window_ns: what percentages are of: the steps; where there are none, the whole trace.
        idle_ns: within the window, no device worked.
        loader_ns: within the window, the main thread waited for a batch; None: the trace does not say when it does.
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
        return 100 * self.stall_ns / self.idle_ns if self.stall_ns is not None and self.idle_ns else None

    @property
    def speedup_ceiling(self) -> float | None:
        """How many times faster the same work would be with batches that are always ready: window / (window - stall)."""
        if self.stall_ns is None or self.stall_ns >= self.window_ns:
            return None
        return self.window_ns / (self.window_ns - self.stall_ns)

    def _pct(self, ns: int | None) -> float | None:
        return 100 * ns / self.window_ns if ns is not None and self.window_ns else None


def loading(trace: Trace, who: Threads) -> IntArray:
    """When the main thread waited for a batch: a set, ns."""
    mine = _waits(trace, who)
    start = trace.events["start"][mine]
    return union(start, start + trace.events["wall"][mine])


def find_input(trace: Trace, who: Threads, window: Basis, waits: IntArray, busy: IntArray) -> Input:
    """Sum up the waits for batches.

    Args:
        window: what the figures are of.
        waits: of ``loading``.
        busy: when a device worked: a set, ns.
    """
    waits, busy = (clip(moments, window.begin, window.end) for moments in (waits, busy))
    mine = _waits(trace, who)
    calls = int((mine & window.began(trace.events)).sum())
    names = tuple(trace.names[number] for number in np.unique(trace.events["name"][mine]))
    idle = window.ns - length(busy)
    if not names:
        why = _why_not(trace, who)
        return Input(window.ns, idle, None, None, 0, (), dict.fromkeys(("loader_pct", "stall_pct", "speedup_ceiling"), why))
    if not of_kinds(trace, Kind.KERNEL, Kind.COPY, Kind.SET).any():
        why = f"{NO_WORK}, so it is unknown whether the device was idle while the main thread waited for its loader"
        stalled = dict.fromkeys(("stall_pct", "speedup_ceiling"), why)
        return Input(window.ns, idle, length(waits), None, calls, names, stalled)
    return Input(window.ns, idle, length(waits), length(without(waits, busy)), calls, names, {})


def _waits(trace: Trace, who: Threads) -> BoolArray:
    if who.main == UNKNOWN:
        return np.zeros(len(trace.events), bool)
    return named(trace, LOADER) & of_kinds(trace, Kind.ANNOTATION, Kind.OPERATOR) & (trace.events["track"] == who.main)


def _why_not(trace: Trace, who: Threads) -> str:
    if who.main == UNKNOWN:
        return "the trace contains no host threads"
    own = of_kinds(trace, Kind.ANNOTATION) & (trace.events["track"] == who.main)
    similar = [name for number in np.unique(trace.events["name"][own]) if _SOUNDS_LIKE.search(name := trace.names[number])]
    told = f" (perhaps this is one: {', '.join(similar[:_SHOWN])})" if similar else ""
    return f"the trace has no DataLoader range on the main thread, so waiting for batches cannot be measured{told}"
