"""What the device spent its time on in the steps: kernels by name, copies by direction."""

from collections.abc import Set
from dataclasses import dataclass

import numpy as np

from feedline.analysis.intervals import IntArray
from feedline.analysis.traces.basis import Basis
from feedline.analysis.traces.calls import Calls
from feedline.analysis.traces.columns import Kind, Trace
from feedline.analysis.traces.kinds_of_work import Copy, communicates, copy_of, of_kinds
from feedline.analysis.traces.threads import Threads

_MOSTLY = 0.9  # of a kernel's time, from which on the collective that it is of is named


@dataclass(frozen=True)
class KernelRow:
    """All kernels of one name.

    Attributes:
        total_ns: what of their durations lies in the steps, summed; those that overlap count twice.
        busy_share: of the time in which the device was busy.
        operator: which launched most of it; of communication, the range of nearly all of it ("nccl:all_reduce"); "": the trace does not
            say, or several did.
    """

    name: str
    count: int
    total_ns: int
    busy_share: float
    communication: bool
    operator: str


@dataclass(frozen=True)
class CopyRow:
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


def kernels(trace: Trace, who: Threads, called: Calls, busy_ns: int, window: Basis) -> list[KernelRow]:
    """One row a name, the longest first, of what ran in a window."""
    rows = np.flatnonzero(of_kinds(trace, Kind.KERNEL) & window.touches(trace.events))
    if not len(rows):
        return []
    names, wall = trace.events["name"][rows], window.within(trace.events[rows])
    launcher = who.launcher[rows]
    by = np.where(called.backend >= 0, called.backend, called.operator)
    operator = np.where(launcher >= 0, by[launcher], -1)
    speaks = set(trace.events["name"][communicates(trace)].tolist())
    mostly = _mostly(names, operator, wall, speaks)
    table = []
    for name, count, total in zip(*_summed(names, wall)):
        label = trace.names[mostly[name]] if mostly[name] >= 0 else ""
        table.append(KernelRow(trace.names[name], count, total, total / busy_ns if busy_ns else 0.0, name in speaks, label))
    return sorted(table, key=lambda row: -row.total_ns)


def copies(trace: Trace, window: Basis) -> list[CopyRow]:
    """One row a direction and kind of memory, the longest first, of what ran in a window."""
    mine = trace.events[of_kinds(trace, Kind.COPY) & window.touches(trace.events)]
    kinds = {name: copy_of(trace.names[name]) for name in np.unique(mine["name"]).tolist()}
    table = []
    for which in sorted(set(kinds.values())):
        chosen = mine[np.isin(mine["name"], [name for name, kind in kinds.items() if kind == which])]
        known = chosen["nbytes"] >= 0
        nbytes = int(chosen["nbytes"][known].sum()) if known.any() else None
        table.append(CopyRow(which, len(chosen), int(window.within(chosen).sum()), nbytes, int(chosen["wall"][known].sum())))
    return sorted(table, key=lambda row: -row.total_ns)


def _summed(keys: IntArray, wall: IntArray) -> tuple[list[int], list[int], list[int]]:
    """Distinct keys, how often each is there, and the sum of its times."""
    each, place, count = np.unique(keys, return_inverse=True, return_counts=True)
    return each.tolist(), count.tolist(), np.bincount(place, wall).astype(np.int64).tolist()


def _mostly(names: IntArray, operator: IntArray, wall: IntArray, speaks: Set[int]) -> dict[int, int]:
    """Name of a kernel -> of its operators the one with most time; -1: several collectives share a kernel that communicates.

    Args:
        speaks: names of kernels that communicate.
    """
    pairs, _, total = _summed(names.astype(np.int64) << 32 | (operator + 1), wall)
    best: dict[int, tuple[int, int]] = {}
    for pair, time in zip(pairs, total):
        name, by = pair >> 32, (pair & 0xFFFFFFFF) - 1
        best[name] = max(best.get(name, (-1, -1)), (time, by))
    each, _, sums = _summed(names, wall)
    whole = dict(zip(each, sums))
    return {name: by if name not in speaks or time >= _MOSTLY * whole[name] else -1 for name, (time, by) in best.items()}
