"""Where the steps of a trace begin and end, in which thread, and the window of all figures."""

import re
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from feedline.analysis.intervals import BoolArray, IntArray, union
from feedline.analysis.text.formatting import counted, seconds
from feedline.analysis.traces.kernel_names import (
    communicates,
    is_named,
    of_kinds,
    on_device,
    present_numbers,
)
from feedline.analysis.traces.trace_columns import Kind, Trace

NO_TRACK = -1
PROFILER_STEP = re.compile(r"^ProfilerStep ?[#*]")
#: What waits for the next batch: torch's DataLoader (torchdata's StatefulDataLoader takes its name)
#: and the data pipes before it, Lightning's loops, torchtnt, DALI's ranges, feedline's own.
LOADER = re.compile(
    r"^enumerate\(Data(Loader|Pipe)\)#|^\[(pl|pytorch.lightning).*_next$|^(\[.*\])?\[\w*Loop\]\.\w+_next$"
    r"|\bget_next_(train_|eval_|predict_)?batch$|^(DALI:)?\[DALI\]|^feedline:next$"
)
_OPTIMIZER = re.compile(r"^Optimizer\.step#")
_AUTOGRAD = re.compile(r"^autograd::engine::evaluate_function")
WHOLE_TRACE = "the trace"  # what shares are of where there are no steps, in words
_MIN_REPETITIONS = 3  # repetitions that are a pattern
_EVEN = 0.3  # standard deviation of the periods over their mean, above which nothing repeats
_CLEFT = 4.0  # times the gap within a burst that the gap between two must be
_MATCHING = 0.9  # share of names that come again one period later
_MAX_STEP_COLLECTIVES = 4096  # collectives of a step: more are not looked for
#: A range that a user named after what it is: "step", "iteration 12", "train_step", "## step 3 ##",
#: "mydomain:batch_7".
_STEP_WORD = re.compile(
    r"^\W*([\w ]+:)?\W*(train(ing)?[ _-]?)?(step|iter(ation)?|batch|global[ _-]?step)[ "
    r"_#:=-]*\d*\W*$",
    re.IGNORECASE,
)
#: Ranges of frameworks: parts of a step, or calls that repeat within one.
_PART = re.compile(
    r"^(Optimizer\.|nccl:|gloo:|DistributedDataParallel|FSDP::|torch\.|autograd::|enumerate\(|feedline:|ProfilerStep|\[)"
)
_DIGITS_IN_NAME = re.compile(r"\d+")
_FEEDLINE_OPTIMIZER = re.compile(r"^feedline:optimizer$")
_UPDATE = re.compile(
    r"^aten::_fused_(adam|adamw|sgd|adagrad)_?$|^Optimizer\.zero_grad#|multi_tensor_(adam|sgd|lamb)|FusedAdam",
    re.I,
)
_FOREACH = re.compile(r"^aten::_foreach_(addcdiv|add|mul|lerp)_$")
_NO_STEPS = (
    "no steps were found: there is no ProfilerStep and no range that repeats, and neither "
    "optimizer calls nor collectives recur evenly; "
    "all figures cover the whole trace"
)
# share of its own extent that a range has to cover to be the step, if its name does not say so
_COVERS = 0.8


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


@dataclass(frozen=True, eq=False)
class TraceSteps:
    """Consecutive steps on the host's clock.

    Attributes:
        edges: int64 [n + 1], ns: step i is edges[i] to edges[i + 1]; empty: there are none.
        by: "profiler_step", "feedline", "range", "optimizer", "collectives" or "none".
        how: a sentence for the report.
    """

    edges: IntArray
    by: str
    how: str

    def __len__(self) -> int:
        return max(len(self.edges) - 1, 0)


def find_steps(trace: Trace, who: Threads) -> TraceSteps:
    """Cut a trace into steps by the first of these that it has.

    ProfilerStep, feedline's ranges, a user's range that repeats, optimizer, collectives.
    """
    for way in (profiler_steps, _feedline, _ranges, _optimizer, _updates, _collectives):
        steps = way(trace, who)
        if steps is not None:
            return steps
    return TraceSteps(np.zeros(0, np.int64), "none", _NO_STEPS)


def profiler_steps(trace: Trace, who: Threads) -> TraceSteps | None:
    """Return the ranges of torch.profiler's steps.

    The last of several is left out if it has no work, unlike others: ``profile.stop()`` closes the
    range that the last ``profile.step()`` opened.
    """
    start, end = _on_main(trace, who, is_named(trace, PROFILER_STEP))
    if not len(start):
        return None
    edges = np.append(np.unique(start), end.max())
    work = trace.events["start"][_begins_work(trace, who)]
    first = np.searchsorted(np.sort(work), edges)
    if len(edges) > 2 and first[-2] == first[-1] and first[0] < first[-2]:
        edges = edges[:-1]
    return TraceSteps(
        edges,
        "profiler_step",
        f"steps are the {len(edges) - 1} ProfilerStep ranges of torch.profiler",
    )


def _begins_work(trace: Trace, who: Threads) -> BoolArray:
    """Tell which events show that a step works: bool [n].

    They are operators, launches, and the device's work of which no launch is known.
    """
    begins = of_kinds(trace, Kind.OPERATOR) & ~is_named(trace, PROFILER_STEP)
    begins |= on_device(trace) & (who.launcher < 0)
    begins[who.launcher[who.launcher >= 0]] = True
    return begins


def _feedline(trace: Trace, who: Threads) -> TraceSteps | None:
    return _after_updates(
        trace,
        who,
        is_named(trace, _FEEDLINE_OPTIMIZER),
        "feedline",
        "steps end with feedline's optimizer ranges",
    )


def _optimizer(trace: Trace, who: Threads) -> TraceSteps | None:
    return _after_updates(
        trace, who, is_named(trace, _OPTIMIZER), "optimizer", "steps end with Optimizer.step calls"
    )


def _after_updates(
    trace: Trace, who: Threads, chosen: BoolArray, by: str, how: str
) -> TraceSteps | None:
    """Return steps from the end of one optimizer step to the end of the next.

    Those with no batch taken in between (two optimizers) are one.
    """
    calls = union(*_on_main(trace, who, chosen))
    taken, _ = _on_main(trace, who, is_named(trace, LOADER))
    if len(taken) and len(calls):
        before = np.searchsorted(np.sort(taken), calls[:, 0])
        calls = calls[np.append(before[1:] > before[:-1], True)]
    if len(calls) < 2:
        return None
    return TraceSteps(
        calls[:, 1].copy(),
        by,
        f"{how}: {len(calls) - 1} complete steps; time before the first and after the last is "
        f"left out",
    )


def _ranges(trace: Trace, who: Threads) -> TraceSteps | None:
    """Return the range on the main thread that repeats and is named like a step.

    Without one, it is that which covers most of its own extent.
    """
    own = trace.events[of_kinds(trace, Kind.ANNOTATION) & (trace.events["track"] == who.main)]
    families: dict[str, list[int]] = {}
    for number in present_numbers(own["name"]):
        if not _PART.match(trace.names[number]):
            families.setdefault(_DIGITS_IN_NAME.sub("", trace.names[number]).strip(), []).append(
                number
            )
    best: tuple[bool, float, str, IntArray] | None = None
    for family, numbers in families.items():
        is_step = bool(_STEP_WORD.match(family))
        mine = own[np.isin(own["name"], numbers)]
        start, end = mine["start"], mine["start"] + mine["wall"]
        if len(start) < (2 if is_step else _MIN_REPETITIONS) or (start[1:] < end[:-1]).any():
            continue
        share = float((end - start).sum() / max(end[-1] - start[0], 1))
        if (is_step or share >= _COVERS) and (best is None or (is_step, share, family) > best[:3]):
            best = is_step, share, family, np.append(start, end[-1])
    if best is None:
        return None
    return TraceSteps(
        best[3], "range", f"steps are the {len(best[3]) - 1} ranges '{best[2]}' on the main thread"
    )


def _updates(trace: Trace, who: Threads) -> TraceSteps | None:
    """Return steps end with a burst of what only an optimizer calls."""
    for pattern, what in (
        (_UPDATE, "the optimizer's fused calls"),
        (_FOREACH, "the optimizer's foreach calls"),
    ):
        start, end = _on_main(trace, who, is_named(trace, pattern))
        last = _bursts(start, end)
        if last is not None:
            return TraceSteps(
                np.unique(end[last]),
                "optimizer",
                f"steps end with {what}, which recur evenly: {len(last) - 1} complete steps",
            )
    return None


def _collectives(trace: Trace, who: Threads) -> TraceSteps | None:
    """Find steps that begin with the first of a row of collectives that repeats."""
    rows = np.flatnonzero(communicates(trace))
    start = trace.events["start"][rows]
    if len(rows) < _MIN_REPETITIONS:
        return None
    words = np.unique(
        trace.events["name"][rows].astype(np.int64) << 32 | (trace.events["collective"][rows] + 1),
        return_inverse=True,
    )[1]
    every = _period(words.astype(np.int64))
    if every is not None and _even(start[::every]):
        edges = start[::every]
    else:
        last = _bursts(start, start + trace.events["wall"][rows])
        if last is None:
            return None
        edges = start[np.append(0, last[:-1] + 1)]
    edges = np.unique(edges)
    return (
        TraceSteps(
            edges,
            "collectives",
            f"steps begin where the sequence of collectives repeats: {len(edges) - 1} complete "
            f"steps",
        )
        if len(edges) > 1
        else None
    )


def _on_main(trace: Trace, who: Threads, chosen: BoolArray) -> tuple[IntArray, IntArray]:
    """Return starts and ends of the chosen annotations and operators, sorted by start.

    Only those of the main thread count.
    """
    mine = (
        chosen
        & (trace.events["track"] == who.main)
        & of_kinds(trace, Kind.ANNOTATION, Kind.OPERATOR)
    )
    start = trace.events["start"][mine]
    return start, start + trace.events["wall"][mine]


@dataclass(frozen=True)
class TraceWindow:
    """A window of a trace.

    Attributes:
        begin, end: ns since Trace.origin_ns.
        steps: how many it holds; 0: the trace has none, and this is all of it.
    """

    begin: int
    end: int
    steps: int

    @property
    def ns(self) -> int:
        return self.end - self.begin

    @property
    def whole(self) -> str:
        """What shares are of, in words."""
        return "the step" if self.steps else WHOLE_TRACE

    def says(self, trace_ns: int) -> str:
        """Say what all figures are of, for the report.

        Args:
            trace_ns: length of the trace.
        """
        if not self.steps:
            return f"the whole trace ({seconds(trace_ns / 1e9)}), in which no steps were found"
        return (
            f"the {counted(self.steps, 'step')} in the trace ({seconds(self.ns / 1e9)} of "
            f"{seconds(trace_ns / 1e9)})"
        )

    def overlap_ns(self, events: npt.NDArray[np.void]) -> IntArray:
        """Return how much of each event, EVENT_DTYPE [n], lies in the window: int64 [n], ns."""
        start, end = events["start"], events["start"] + events["wall"]
        return np.asarray(
            np.maximum(np.minimum(end, self.end) - np.maximum(start, self.begin), 0), np.int64
        )

    def began(self, events: npt.NDArray[np.void]) -> BoolArray:
        """Tell which events, EVENT_DTYPE [n], began in the window: bool [n]."""
        if not self.steps:
            return np.ones(len(events), bool)
        return np.asarray((events["start"] >= self.begin) & (events["start"] < self.end), bool)

    def touches(self, events: npt.NDArray[np.void]) -> BoolArray:
        """Tell which events, EVENT_DTYPE [n], began in the window or lie partly in it: bool [n]."""
        return np.asarray(self.began(events) | (self.overlap_ns(events) > 0), bool)


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
    for pattern in (PROFILER_STEP, LOADER, _OPTIMIZER):
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


def _bursts(start: IntArray, end: IntArray) -> IntArray | None:
    """Find where each burst of events ends, if bursts come evenly.

    The optimizer's kernels come once a step.

    Args:
        start: int64 [n], ns, ascending.
        end: int64 [n], ns.

    Returns:
        int64 [k], indices of the last event of each burst; None: there are fewer than
        _MIN_REPETITIONS, or they do not come evenly.
    """
    if len(start) < _MIN_REPETITIONS:
        return None
    gaps = np.maximum(start[1:] - np.maximum.accumulate(end)[:-1], 0)
    ordered = np.sort(gaps)
    rise = ordered[1:] / np.maximum(ordered[:-1], 1)
    if len(rise) and rise.max() >= _CLEFT:  # the widest cleft between short gaps and long ones
        above = ordered[int(np.flatnonzero(rise >= _CLEFT)[-1]) + 1]
        last = np.append(np.flatnonzero(gaps >= above), len(start) - 1)
    else:
        last = np.arange(len(start))
    return last if _even(end[last]) else None


def _even(times: IntArray) -> bool:
    """Tell whether these times, int64 [n] sorted, are about equally far apart.

    They must be at least _MIN_REPETITIONS.
    """
    if len(times) < _MIN_REPETITIONS:
        return False
    periods = np.diff(times)
    return bool(periods.std() <= _EVEN * periods.mean())


def _period(words: npt.NDArray[np.int64]) -> int | None:
    """Return the period of a sequence of words: 3 for a b b a b b a b b.

    None: it does not repeat, or all words are alike.

    Args:
        words: int64 [n], a number for each different word.
    """
    for length in range(2, min(len(words) // _MIN_REPETITIONS, _MAX_STEP_COLLECTIVES) + 1):
        if (words[length:] == words[:-length]).mean() >= _MATCHING:
            return length if len(np.unique(words[:length])) > 1 else None
    return None
