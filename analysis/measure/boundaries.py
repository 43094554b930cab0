"""Where a step begins and ends, and what is evaluation: read off what the main thread did, without a call by the user.

A step is one update of the parameters. It begins where the loader is first asked after the update before (so its wait is the first thing in
it), or right after that update when no loader is asked in between. Two optimizers that take turns within one iteration make one step,
and those that train one after another steps of their own (profiler/record/optimizer_tracker.py).

    iter(loader) next forward backward optimizer (logging) next forward backward next forward backward optimizer
    |------------------------ step 0 ---------------------||----- step 1: gradient accumulation ----------------|
"""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from feedline.analysis.intervals import IntArray, holds
from feedline.analysis.measure.clues import Skipped
from feedline.profiler.events import Flag, Stage
from feedline.profiler.record.optimizer_alternation import OptimizerAlternation
from feedline.profiler.store.record_columns import Records, view
from feedline.profiler.store.segment_reader import Process

_BATCH_OF_PASS = (1 << 32) - 1  # of a batch key (profiler/events.py)
_FEWEST_SKIPPED = 3  # batches: fewer may be taken for something else, such as a look at the data
_OFTEN_SKIPPED = 0.8  # of the passes


@dataclass(frozen=True)
class Boundaries:
    """Steps of one thread.

    Attributes:
        start, end: int64 [n], ns; a step may hold evaluation, which is none of its time.
        evaluation: int64 [m, 2], ns, disjoint and sorted.
        training_loaders: numbers of the loaders that feed steps.
        unused: numbers of those whose batches no model was given.
        by: "optimizer", "backward" or "loader".
        elsewhere: NEXT records of batches for training that other threads took from their loaders.
        evaluation_stands_for: ns of evaluation for each that is known; 1: no window was forgotten.
    """

    start: IntArray
    end: IntArray
    evaluation: IntArray
    training_loaders: frozenset[int]
    unused: frozenset[int]
    by: str
    elsewhere: Records
    evaluation_stands_for: float = 1.0

    def step_of(self, times: IntArray) -> IntArray:
        """Return the index of the step that each time lies in, int64 [n]; -1: in none."""
        at = np.searchsorted(self.start, times, "right") - 1
        return np.where((at >= 0) & (times < np.append(self.end, 0)[at]), at, -1)


def training_loaders(process: Process) -> frozenset[int]:
    """Return the numbers of the loaders that feed the training of a process.

    Any of its threads may go through them.
    """
    return _requests_of(process).training_loaders


def evaluated_loaders(process: Process) -> frozenset[int]:
    """Return the numbers of the loaders from which batches came, but nothing was learned."""
    asked = _requests_of(process)
    return frozenset(asked.records["source"].tolist()) - asked.training_loaders


def _requests_of(process: Process) -> "_BatchRequests":
    records = process.records[
        np.isin(process.records["stage"], (Stage.NEXT, Stage.FORWARD, Stage.BACKWARD))
    ]
    records = records[np.argsort(records["start"], kind="stable")]
    first = records["thread"] == 0
    return _BatchRequests.of(records[first], records[~first])


def find(
    main: Records, rests: Records | None = None, elsewhere: Records | None = None
) -> Boundaries | None:
    """Cut the main thread's records into steps; None when it made none.

    Args:
        main: records [n] of the main thread, sorted by start.
        rests: REST records: the steps in them were only counted, and are none of those found.
        elsewhere: records of other threads.
    """
    asked = _BatchRequests.of(main, elsewhere)
    evaluation = _evaluations(main, asked)
    updates, by = _updates(main, evaluation)
    if not len(updates):
        return None
    asks = main[asked.of_used(main) & ~holds(evaluation, main["start"])]["start"]
    if rests is not None and len(rests):
        asks = np.sort(np.concatenate([asks, rests["start"]]))
    edges = _edges(updates, asks, by)
    first = asks[asks < edges[0]][:1] if by != "loader" else asks[:1]
    begin = int(first[0]) if len(first) else int(main["start"][0])
    start = np.array([begin, *edges[:-1]], np.int64)
    if rests is not None and len(rests):
        start = _after_rests(start, rests)
    return Boundaries(
        start,
        np.array(edges, np.int64),
        evaluation,
        asked.training_loaders,
        asked.unused,
        by,
        asked.elsewhere,
    )


def _after_rests(start: IntArray, rests: Records) -> IntArray:
    """Let steps that would begin in a rest begin when that is over."""
    rests = np.sort(rests, order="start")
    at = np.searchsorted(rests["start"], start, "right") - 1
    until = np.where(at >= 0, rests["start"][at] + np.maximum(rests["wall"][at], 0), 0)
    return np.maximum(start, until)


def _learned(main: Records) -> tuple[Records, str]:
    """Return what updates parameters, by the end of each, and its name."""
    for stage, by in ((Stage.OPTIMIZER, "optimizer"), (Stage.BACKWARD, "backward")):
        updates = main[(main["stage"] == stage) & (main["flags"] & Flag.FAILED == 0)]
        if len(updates):
            return updates[np.argsort(updates["start"] + updates["wall"])], by
    return main[:0], ""


def _updates(main: Records, evaluation: IntArray) -> tuple[Records, str]:
    updates, by = _learned(main)
    if by:
        return updates, by
    asked = main[(main["stage"] == Stage.NEXT) & gave(main) & ~holds(evaluation, main["start"])]
    return asked, "loader"


def _edges(updates: Records, asks: IntArray, by: str) -> list[int]:
    """Return the end of each step, ns."""
    if by == "loader":
        return [*updates["start"][1:].tolist(), int(updates["start"][-1] + updates["wall"][-1])]
    ends = updates["start"] + updates["wall"]
    starts = updates["start"]
    who = updates["number"].tolist()
    asked = np.searchsorted(asks, ends)  # first ask after each update
    next_start = np.append(starts[1:], np.iinfo(np.int64).max)
    ask = np.append(asks, np.iinfo(np.int64).max)[asked]
    between = (ask < next_start).tolist()
    turns = _turns(who, between)
    edges: list[int] = []
    step: list[int] = []
    for index, end in enumerate(ends.tolist()):
        step.append(who[index])
        if between[index]:
            edges.append(int(ask[index]))
        elif index == len(ends) - 1 or not turns.same_step(step, who[index + 1]):
            edges.append(end)
        else:
            continue
        step.clear()
    return edges


def _turns(who: list[int], asked: list[bool]) -> OptimizerAlternation:
    """Follow the optimizers of these updates, in order.

    Args:
        who: the optimizer of each update.
        asked: whether a loader was asked for a batch after each.
    """
    turns = OptimizerAlternation()
    for optimizer, before in zip(
        who,
        [
            None,
            *(
                None if ask else optimizer_before
                for optimizer_before, ask in zip(who, asked, strict=True)
            ),
        ],
    ):
        turns.saw(optimizer, before)
    return turns


@dataclass(frozen=True)
class _BatchRequests:
    """Requests for a batch, and what was done until the next request.

    Attributes:
        records: NEXT records [n] that returned a batch.
        learns, infers: bool [n], a backward or a forward that trains followed; another forward
            followed.
    """

    records: Records
    learns: npt.NDArray[np.bool_]
    infers: npt.NDArray[np.bool_]

    @classmethod
    def of(cls, main: Records, elsewhere: Records | None = None) -> "_BatchRequests":
        every = main if elsewhere is None else np.concatenate([main, elsewhere])
        asked = view(every[every["stage"] == Stage.NEXT], Stage.NEXT)
        asked = asked[gave(asked)]
        asked = asked[np.argsort(asked["start"], kind="stable")]
        after = np.append(asked["start"][1:], np.iinfo(np.int64).max)
        forward, trains = main["stage"] == Stage.FORWARD, trains_forward(main)

        def followed_by(chosen: npt.NDArray[np.bool_]) -> npt.NDArray[np.bool_]:
            times = np.sort(main["start"][chosen])
            return np.asarray(
                np.searchsorted(times, after) > np.searchsorted(times, asked["start"])
            )

        return cls(
            asked,
            followed_by((main["stage"] == Stage.BACKWARD) | trains),
            followed_by(forward & ~trains),
        )

    @property
    def only_infers(self) -> npt.NDArray[np.bool_]:
        """Evaluation.

        A batch that neither learns nor infers was fetched ahead, for accumulation.
        """
        return self.infers & ~self.learns

    @property
    def training_loaders(self) -> frozenset[int]:
        """Loaders after whose batches something was learned at least once.

        Those of which nothing can be told are among them.
        """
        sources = self.records["source"]
        untold = set(sources.tolist()) - set(sources[self.only_infers].tolist()) - self.unused
        return frozenset(set(sources[self.learns].tolist()) | untold)

    @property
    def unused(self) -> frozenset[int]:
        """Loaders whose batches no model was given.

        All came before another loader's first batch to learn from, and nothing followed. A program
        may look at one batch before it trains, or copy a loader into a dataset of its own. Of two
        loaders that feed each step together only one is followed by its forward, but both are asked
        again.
        """
        sources, learned = self.records["source"], self.records["start"][self.learns]
        if len(learned) < 2:
            return frozenset()
        later = (self.records["start"] > learned[0]) | self.learns | self.infers
        return frozenset(set(sources.tolist()) - set(sources[later].tolist()))

    @property
    def elsewhere(self) -> Records:
        """Those in other threads, for training."""
        chosen = (
            (self.records["thread"] != 0)
            & ~self.only_infers
            & np.isin(self.records["source"], list(self.training_loaders))
        )
        return self.records[chosen]

    def of_used(self, main: Records) -> npt.NDArray[np.bool_]:
        """Mark what asks a loader whose batches a model was given, bool [len(main)].

        It is a request, or the beginning of a pass.
        """
        return np.isin(main["stage"], (Stage.NEXT, Stage.EPOCH)) & ~np.isin(
            main["source"], list(self.unused)
        )

    def evaluates(self, main: Records) -> npt.NDArray[np.bool_]:
        """Mark requests that only infer, bool [len(main)].

        So are the beginning and the end of a pass over a loader in which nothing is learned.
        """
        keys = _pass_of(self.records)
        passes = np.setdiff1d(keys[self.only_infers], keys[self.learns])
        of_pass = np.isin(main["stage"], (Stage.NEXT, Stage.EPOCH)) & np.isin(
            _pass_of(main), passes
        )
        return of_pass | (main["stage"] == Stage.NEXT) & np.isin(
            main["start"], self.records["start"][self.only_infers]
        )


def trains_forward(main: Records) -> npt.NDArray[np.bool_]:
    """Mark forwards in training mode with gradients, bool [n].

    Who forgets ``no_grad`` in an evaluation loop has called ``eval()``.
    """
    wanted = Flag.GRAD | Flag.TRAINING
    return np.asarray((main["stage"] == Stage.FORWARD) & (main["flags"] & wanted == wanted))


def gave(asked: Records) -> npt.NDArray[np.bool_]:
    """Mark requests to which a batch came, bool [n].

    None came at the end of a pass, nor where the request failed or was interrupted.
    """
    return np.asarray(asked["flags"] & (Flag.END | Flag.FAILED) == 0)


def _pass_of(records: Records) -> IntArray:
    """Return one number for each pass over a loader."""
    epoch = np.where(records["stage"] == Stage.EPOCH, records["number"], records["number"] >> 32)
    return np.asarray(records["source"].astype(np.int64) << 32 | epoch)


def _evaluations(main: Records, asks: _BatchRequests) -> IntArray:
    """Return the intervals of evaluation, [m, 2], ns.

    Each goes from the first request that only infers to the next event that trains. Loops without a
    loader that call models without gradients are evaluation as well.
    """
    loader = asks.of_used(main)
    trains = np.isin(main["source"], list(asks.training_loaders)) & loader & ~asks.evaluates(main)
    trains |= np.isin(main["stage"], (Stage.BACKWARD, Stage.OPTIMIZER)) | trains_forward(main)
    marks = main[trains | loader]
    intervals: list[tuple[int, int]] = []
    begin: int | None = None
    for start, training in zip(marks["start"].tolist(), trains[trains | loader].tolist()):
        if training and begin is not None:
            intervals.append((begin, start))
            begin = None
        elif not training and begin is None:
            begin = start
    if begin is not None:
        intervals.append((begin, int((main["start"] + main["wall"]).max())))
    return _union([*intervals, *_inference(main)])


def _inference(main: Records) -> list[tuple[int, int]]:
    """Return the runs of forwards without gradients that nothing which trains interrupts.

    Each goes from the first one's start to the last one's end. Where steps have such forwards of
    their own (a teacher, a target network), a run is one only if it has more than twice as many.
    """
    updates, _ = _learned(main)
    if not len(updates):
        return []
    infers = (main["stage"] == Stage.FORWARD) & (main["flags"] & Flag.GRAD == 0)
    trains = np.isin(main["stage"], (Stage.BACKWARD, Stage.OPTIMIZER)) | trains_forward(main)
    marks, alike = main[infers | trains], infers[infers | trains].astype(np.int64)
    edges = np.flatnonzero(np.diff(alike, prepend=0, append=0)).reshape(-1, 2)
    calls = edges[:, 1] - edges[:, 0]
    of_step = np.bincount(
        np.searchsorted(updates["start"], marks["start"][edges[:, 0]]), calls, len(updates) + 1
    )
    loops = edges[calls > 2 * np.median(of_step) + 1]
    ends = marks["start"] + marks["wall"]
    return list(
        zip(marks["start"][loops[:, 0]].tolist(), ends[loops[:, 1] - 1].tolist(), strict=True)
    )


def _union(intervals: list[tuple[int, int]]) -> IntArray:
    joined: list[tuple[int, int]] = []
    for begin, end in sorted(intervals):
        if joined and begin <= joined[-1][1]:
            begin, end = joined[-1][0], max(end, joined.pop()[1])
        joined.append((begin, end))
    return np.array(joined, np.int64).reshape(-1, 2)


def left_over(asked: Records, main: Records, rests: Records) -> npt.NDArray[np.bool_]:
    """Return which batches nothing was trained on, bool [n].

    They are the last ones of passes that were left before their end.

    Args:
        asked: NEXT records [n] of the loaders that feed the steps in order of time, those at the
            end of a pass too.
        main: records of the main thread.
        rests: REST records: training went on in them.
    """
    unused = np.zeros(len(asked), np.bool_)
    trained = _trained(main, rests)
    if not len(trained):
        return unused
    for batches, until in _passes(asked):
        if (asked["flags"][batches] & Flag.END == 0).all():
            begin, end = np.searchsorted(trained, [asked["start"][batches[0]], until])
            unused[
                batches[len(batches) - _unused(asked["start"][batches], trained[begin:end]) :]
            ] = True
    return unused


def skipped(asked: Records, main: Records, rests: Records) -> Skipped | None:
    """Return the first batches of each pass that nothing is trained on; None: there are none.

    A loop that takes batches ahead trains on as many after it has asked for the last: that is none.

    Args:
        asked, main, rests: as of ``left_over``.
    """
    trained, begun = _trained(main, rests), []
    for at, until in _passes(asked):
        batches = asked[at][gave(asked[at])]
        if len(batches) <= _FEWEST_SKIPPED or not len(trained):
            continue
        numbers = batches["number"] & _BATCH_OF_PASS
        if numbers[0]:
            continue  # its beginning was not recorded
        after = np.append(batches["start"][1:], until)
        times = np.searchsorted(trained, after) - np.searchsorted(trained, batches["start"])
        used = times > 0
        first = int(np.argmax(used))
        if not used.any() or not used[first:-1].all():
            continue
        usual = float(np.median(times[used]))
        ahead = float(times[-1]) - usual > usual * first / 2
        begun.append((0 if ahead else first, int(numbers[first]), int(numbers.max()) + 1))
    counts = [seen for seen, _, _ in begun if seen >= _FEWEST_SKIPPED]
    if len(counts) < max(2, _OFTEN_SKIPPED * len(begun)):
        return None
    return Skipped(min(first for _, first, _ in begun), max(of for _, _, of in begun))


def _trained(main: Records, rests: Records) -> IntArray:
    """Return when gradients were computed, ns, sorted.

    Where not every update had a backward that was seen, the updates say it too.
    """
    backward, updates = (
        main["start"][main["stage"] == stage] for stage in (Stage.BACKWARD, Stage.OPTIMIZER)
    )
    seen = (
        [backward, rests["start"]]
        if len(backward) >= len(updates)
        else [backward, updates, rests["start"]]
    )
    return np.sort(np.concatenate(seen))


def _passes(asked: Records) -> Iterator[tuple[IntArray, int]]:
    """Yield the indices of each pass's requests, and when the same loader's next pass began, ns.

    That is "never" where passes run side by side.
    """
    never = np.iinfo(np.int64).max
    for source in np.unique(asked["source"]):
        own = np.flatnonzero(asked["source"] == source)
        keys = _pass_of(asked[own])
        order = np.argsort(keys, kind="stable")
        passes = np.split(own[order], np.flatnonzero(np.diff(keys[order])) + 1)
        passes.sort(key=lambda key: int(key[0]))
        for key, following in zip(passes, [*passes[1:], None]):
            apart = following is not None and following[0] > key[-1]
            yield (
                key,
                int(asked["start"][following[0]]) if following is not None and apart else never,
            )


def _unused(asked: IntArray, trained: IntArray) -> int:
    """Return how many of a pass's batches nothing was trained on.

    They come after the last time that anything was, and are the lead with which it began.

    Args:
        asked, trained: int64, ns, sorted.
    """
    before = np.searchsorted(trained, asked)  # what was trained before each request
    late = before == len(trained)
    _, each = np.unique(before[~late], return_counts=True)
    regular = len(each) > 1 and bool((each[1:] == each[1]).all())
    return int(late.sum()) + (max(0, int(each[0] - each[1])) if regular else 0)
