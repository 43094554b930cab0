"""Which thread is the training's own, which thread works for it, and which only watches."""

import re
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from feedline.analysis.intervals import BoolArray, IntArray
from feedline.analysis.traces.kinds_of_work import is_named, of_kinds, on_device, present_numbers
from feedline.analysis.traces.trace_columns import Kind, Trace

NO_TRACK = -1
PROFILER_STEP = re.compile(r"^ProfilerStep ?[#*]")
#: What waits for the next batch: torch's DataLoader (torchdata's StatefulDataLoader takes its name)
#: and the data pipes before it, Lightning's loops, torchtnt, DALI's ranges, feedline's own.
LOADER = re.compile(
    r"^enumerate\(Data(Loader|Pipe)\)#|^\[(pl|pytorch.lightning).*_next$|^(\[.*\])?\[\w*Loop\]\.\w+_next$"
    r"|\bget_next_(train_|eval_|predict_)?batch$|^(DALI:)?\[DALI\]|^feedline:next$"
)
OPTIMIZER = re.compile(r"^Optimizer\.step#")
_AUTOGRAD = re.compile(r"^autograd::engine::evaluate_function")


@dataclass(frozen=True, eq=False)
class Threads:
    """The threads of a trace by what they are for.

    Attributes:
        main: index into ``Trace.tracks`` of the thread that takes the batches and makes the steps;
            NO_TRACK: the trace holds no host.
        working: int64 [k], tracks: the main thread and those that ran operators or launched work
            for it; not NCCL's watchdog, which only asks.
        launcher: int32 [n], per event: for the device's work, the index of the call that launched
            it; -1 elsewhere, or not in the trace.
    """

    main: int
    working: IntArray
    launcher: npt.NDArray[np.int32]


def find_threads(trace: Trace) -> Threads:
    """Tell the threads of a trace apart."""
    launcher = _launcher(trace)
    launching = trace.events["track"][launcher[launcher >= 0]]
    host = np.append([track.device < 0 for track in trace.tracks], False).astype(bool)[
        trace.events["track"]
    ]
    operators = of_kinds(trace, Kind.OPERATOR) & host
    main = _main(trace, host, operators, launching)
    working = {
        *present_numbers(trace.events["track"][operators]),
        *present_numbers(launching),
        main,
    } - {NO_TRACK}
    return Threads(main, np.array(sorted(working), np.int64), launcher)


def _main(
    trace: Trace, host: BoolArray, operators: BoolArray, launching: npt.NDArray[np.int32]
) -> int:
    """Return the thread with ProfilerStep; else with waits for a loader; else with optimizer steps.

    Else with most operators that autograd's threads did not run; else the one that launched most;
    else the busiest.
    """
    track = trace.events["track"]
    marked = host & of_kinds(trace, Kind.ANNOTATION, Kind.OPERATOR)
    for pattern in (PROFILER_STEP, LOADER, OPTIMIZER):
        if (there := marked & is_named(trace, pattern)).any():
            return _busiest(track[there])
    autograd = present_numbers(track[operators & is_named(trace, _AUTOGRAD)])
    others = track[host & of_kinds(trace, Kind.RUNTIME, Kind.ANNOTATION, Kind.PYTHON)]
    for tracks in (
        track[operators & ~np.isin(track, autograd)],
        track[operators],
        launching,
        others,
    ):
        if len(tracks):
            return _busiest(tracks)
    return NO_TRACK


def _busiest(tracks: npt.NDArray[np.int32]) -> int:
    return int(np.bincount(tracks).argmax())


def _launcher(trace: Trace) -> npt.NDArray[np.int32]:
    events = trace.events
    launcher = np.full(len(events), -1, np.int32)
    joins = events["correlation"] > 0  # CUPTI counts from 1
    calls = np.flatnonzero(of_kinds(trace, Kind.RUNTIME) & joins)
    work = np.flatnonzero(on_device(trace) & joins)
    if not len(calls) or not len(work):
        return launcher
    order = calls[np.argsort(events["correlation"][calls], kind="stable")]
    known, wanted = events["correlation"][order], events["correlation"][work]
    place = np.minimum(np.searchsorted(known, wanted), len(known) - 1)
    launcher[work] = np.where(known[place] == wanted, order[place], -1)
    return launcher
