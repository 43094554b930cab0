"""The partition of every step.

Each nanosecond of the main thread belongs to one stage, and unclaimed time is "other".
"""

from dataclasses import dataclass, field, replace

import numpy as np
import numpy.typing as npt

from feedline.analysis.intervals import IntArray, Pieces, common, cut, flatten, holds, overlap
from feedline.analysis.measure.boundaries import Boundaries, find, gave, left_over, skipped
from feedline.analysis.measure.clues import Making, Skipped
from feedline.analysis.measure.garbage import collecting
from feedline.analysis.measure.kept_windows import moments, times_beside
from feedline.analysis.measure.making import STAGE, find_making
from feedline.analysis.measure.making import STAGE as INPUT
from feedline.analysis.measure.stages import STAGE_OF_RECORD
from feedline.profiler.events import Flag, Stage
from feedline.profiler.store.record_columns import Records, view
from feedline.profiler.store.segment_reader import Process

# what did not happen in the main thread, though it wrote it down
ASIDE = (
    Stage.GPU,
    Stage.PROFILED,
    Stage.FLOP,
    Stage.COLLECTIVE,
    Stage.GROUP,
    Stage.CLOCK,
    Stage.REST,
    Stage.TAKEN,
    Stage.WOKEN,
    Stage.MADE,
    Stage.LOOKED,
    Stage.OWN_CODE,
    Stage.CALLED,
    Stage.GARBAGE,
    Stage.KEPT,
    Stage.DROPPED,
    Stage.CONTENTS,
)
_FEWEST = 4  # steps that are worth a mean
_BATCH_IN_EPOCH = (1 << 32) - 1  # of a batch key (profiler/events.py)

_GIVING_OUT = 0.05  # of the step: less says nothing of the input anyway


@dataclass(frozen=True)
class Steps:
    """Steps x stages of one rank.

    Attributes:
        start: int64 [n], ns.
        wall: int64 [n], ns, evaluation taken out.
        stages: name -> int64 [n], ns; they sum to ``wall``.
        batches: int64 [n], batches taken from training loaders, without those that nothing was
            trained on.
        samples: int64 [n], samples in them.
        boundaries: how they were cut.
        waiting: pieces [m] of waiting, each inside a NEXT record.
        waiting_for: int64 [m], index into ``asked``.
        waiting_in: int64 [m], index of the step.
        asked: the NEXT records of the training loaders, those at the end of an epoch too.
        handing: int64 [n], ns of "wait" in which the main thread had begun to receive a batch and
            waited for its worker to go on.
        making: functions of the program that make its batches; None: not known, or a loader does.
        unclaimed: int64 [n], ns that may be input without a loader: "other", stages that the
            program names, modules without parameters, and of "loss" what lies between a forward and
            its backward.
        computing_loss: int64 [n], ns of "loss" between a forward and its backward, where the
            program's own code runs.
        evaluating: ns of all evaluations and rollouts that belong to no stage.
        resident: bool [n], all that models get in the step was in memory before.
        skipped: first batches of each pass that nothing is trained on; None: there are none.
        collecting: stage -> int64 [n], ns of it that are garbage collections.
    """

    start: IntArray
    wall: IntArray
    stages: dict[str, IntArray]
    batches: IntArray
    samples: IntArray
    boundaries: Boundaries
    waiting: Pieces
    waiting_for: IntArray
    waiting_in: IntArray
    asked: Records
    handing: IntArray
    unclaimed: IntArray
    computing_loss: IntArray
    evaluating: int
    resident: npt.NDArray[np.bool_]
    making: Making | None = None
    collecting: dict[str, IntArray] = field(default_factory=dict)
    skipped: Skipped | None = None


def steps_of(main: Process) -> Steps | None:
    """Cut the training process's records into steps x stages. None: it never made a step.

    A run that forgot windows (store/segment.py) is cut window by window. Steps that touch a gap are
    left out, but for those with which a pass over a loader begins: what was before it is.
    """
    records = _of_main_thread(main)
    boundaries = _boundaries(main, records)
    if boundaries is None:
        return None
    boundaries = _undisturbed(boundaries, main.of(Stage.PROFILED))
    spans = records[
        np.isin(records["stage"], list(STAGE_OF_RECORD))
        | ((records["stage"] == Stage.USER) & ~_in_fetch(records))
    ]
    pieces = flatten(spans["start"], spans["wall"])
    pieces = _loss_gaps(pieces, spans)
    edges = np.unique(
        np.concatenate([boundaries.start, boundaries.end, boundaries.evaluation.ravel()])
    )
    pieces = cut(pieces, edges)
    asked = view(records[records["stage"] == Stage.NEXT], Stage.NEXT)
    asked = asked[np.isin(asked["source"], list(boundaries.training_loaders))]
    left = (
        left_over(asked, records, main.of(Stage.REST))
        if main.stride == 1
        else np.zeros(len(asked), np.bool_)
    )
    steps = _sum(pieces, spans, main.names, boundaries, asked, left)
    making = find_making(main, spans, pieces, boundaries)
    steps = replace(
        steps,
        collecting=collecting(main, pieces, spans, boundaries),
        skipped=skipped(asked, records, main.of(Stage.REST)) if main.stride == 1 else None,
    )
    if not len(main.of(Stage.REST)):  # else it is a part of what recording a step in full costs
        steps = _without_looking(steps, main.view(Stage.OWN_CODE))
    if making is None or _gives_out(making, steps):
        return steps
    stages = _taken_out(making, steps.stages)
    moved = {
        name: steps.stages[name] - stages[name] for name in ("loss", "other") if name in stages
    }
    unclaimed = np.maximum(steps.unclaimed - sum(moved.values()), 0)
    computing_loss = np.maximum(steps.computing_loss - moved.get("loss", 0), 0)
    return replace(
        steps, stages=stages, making=making, unclaimed=unclaimed, computing_loss=computing_loss
    )


def all_boundaries(main: Process) -> Boundaries | None:
    """Return the boundaries of all steps, those that torch.profiler slowed too. None: no steps."""
    return _boundaries(main, _of_main_thread(main))


def kept_moments(main: Process) -> IntArray:
    """Return the time of which all was kept that the main thread did, int64 [k, 2], ns."""
    return moments(_of_main_thread(main), main.stride)


def _of_main_thread(main: Process) -> Records:
    """Return the records of what happened in the main thread, sorted by start."""
    first = main.records["thread"] == 0
    records = main.records[first & ~np.isin(main.records["stage"], ASIDE)]
    return records[np.argsort(records["start"], kind="stable")]


def _boundaries(main: Process, records: Records) -> Boundaries | None:
    """Return the boundaries of the steps that no gap in the records touches. None: no steps.

    Args:
        records: of the main thread.
    """
    if not len(records):
        return None
    elsewhere = main.records[main.records["thread"] != 0]
    found = find(records, main.of(Stage.REST), elsewhere)
    return _whole(found, records, main) if found is not None else None


def _gives_out(making: Making, steps: Steps) -> bool:
    """Tell whether functions only give out what is in memory, as properties of a graph do.

    A choice of parts of it may take longer, and is the program's input.
    """
    took = sum(part[making.looked].sum() for part in making.took.values())
    little = took < _GIVING_OUT * steps.wall[making.looked].sum()
    return bool(little and steps.resident[making.looked].all())


def runs_closures(main: Process) -> bool:
    """Tell whether updates call closures.

    The stage "optimizer" then has what these do outside the model and backward.
    """
    updates, backwards = main.of(Stage.OPTIMIZER), main.of(Stage.BACKWARD)["start"]
    order = np.argsort(updates["start"], kind="stable")
    start, end = updates["start"][order], (updates["start"] + updates["wall"])[order]
    return bool((overlap(backwards, backwards + 1, start, np.maximum.accumulate(end)) > 0).any())


def left_after(steps: Steps | None) -> int | None:
    """Return the batches of the last pass over the training loader.

    None: that did not come to its end, or a step followed.
    """
    if steps is None or not len(steps.asked) or not len(steps.start):
        return None
    last = steps.asked[-1]
    if not last["flags"] & Flag.END or steps.start[-1] > last["start"]:
        return None
    return int(last["number"] & _BATCH_IN_EPOCH)


def _without_looking(steps: Steps, looks: Records) -> Steps:
    """Take off what looking at the program's own code took of the steps."""
    at = steps.boundaries.step_of(looks["start"])
    evaluated = holds(steps.boundaries.evaluation, looks["start"])
    inside = (at >= 0) & ~evaluated
    took = np.bincount(at[inside], looks["looking"][inside], len(steps.wall)).astype(np.int64)
    took = np.minimum(took, steps.stages["other"])
    stages = {**steps.stages, "other": steps.stages["other"] - took}
    looking = float(looks["looking"][evaluated].sum()) * steps.boundaries.evaluation_stands_for
    evaluating = max(steps.evaluating - round(looking), 0)
    unclaimed = np.maximum(steps.unclaimed - took, 0)
    return replace(
        steps, wall=steps.wall - took, stages=stages, unclaimed=unclaimed, evaluating=evaluating
    )


def _in_fetch(records: Records) -> npt.NDArray[np.bool_]:
    fetches = records[records["stage"] == Stage.FETCH]
    return (
        overlap(
            records["start"],
            records["start"] + 1,
            fetches["start"],
            fetches["start"] + fetches["wall"],
        )
        > 0
    )


def _whole(boundaries: Boundaries, records: Records, main: Process) -> Boundaries:
    """Cut steps and evaluation at the gaps of a run that forgot windows.

    Steps in which records are missing are left out.

    Args:
        records: of the main thread.
    """
    if main.stride == 1:
        return boundaries
    kept = moments(records, main.stride)
    if not len(kept):  # of a damaged recording
        none = boundaries.start[:0]
        return replace(boundaries, start=none, end=none, evaluation=kept)
    begin, end = kept[:, 0], boundaries.end
    at = np.searchsorted(begin, end) - 1  # that each step ends in
    begun = np.where(at >= 0, begin[at], end)
    # the one before is not known: the first step of a pass begins with that
    loaders = np.isin(records["source"], list(boundaries.training_loaders))
    passes = records["start"][(records["stage"] == Stage.EPOCH) & loaders]
    first = np.append(passes, np.iinfo(np.int64).max)[np.searchsorted(passes, begun)]
    start = np.where(boundaries.start < begun, first, boundaries.start)
    whole = (at >= 0) & (end <= kept[at, 1]) & (start < end)
    evaluation = common(boundaries.evaluation, kept)
    forwards = holds(evaluation, main.of(Stage.FORWARD)["start"])
    return replace(
        boundaries,
        start=start[whole],
        end=end[whole],
        evaluation=evaluation,
        evaluation_stands_for=times_beside(main, Stage.FORWARD, ~forwards, boundaries.by),
    )


def _undisturbed(boundaries: Boundaries, profiled: Records) -> Boundaries:
    """Leave out the steps in which torch.profiler recorded, which takes time of its own.

    Where next to nothing is left, they stay.
    """
    end = (
        np.maximum.accumulate(profiled["start"] + profiled["wall"])
        if len(profiled)
        else profiled["start"]
    )
    slowed = overlap(boundaries.start, boundaries.end, profiled["start"], end) > 0
    if (~slowed).sum() < _FEWEST:
        return boundaries
    return replace(boundaries, start=boundaries.start[~slowed], end=boundaries.end[~slowed])


def _loss_gaps(pieces: Pieces, spans: Records) -> Pieces:
    """Give the time between a forward and the backward after it to the loss.

    No tap sees functional losses. The owner of such a piece is -1.
    """
    gap = pieces.start[1:] - pieces.end[:-1]
    at = np.flatnonzero(
        (gap > 0) & of_loss(spans["stage"][pieces.owner], spans["flags"][pieces.owner])
    )
    return Pieces(
        np.insert(pieces.start, at + 1, pieces.end[at]),
        np.insert(pieces.end, at + 1, pieces.start[at + 1]),
        np.insert(pieces.owner, at + 1, -1),
    )


def of_loss(stage: npt.NDArray[np.uint8], flags: npt.NDArray[np.uint16]) -> npt.NDArray[np.bool_]:
    """Tell where the loss is computed between two spans: after a forward, before its backward.

    ``zero_grad`` may be called anywhere there. Where the forward has returned the loss, what a
    program does then may be anything, such as getting the next batch.

    Args:
        stage, flags: [n], of spans in order.

    Returns:
        bool [n - 1]: of what is between each span and the next.
    """
    calls = np.append(np.flatnonzero(stage != Stage.GRADIENTS), -1)
    index = np.searchsorted(calls[:-1], np.arange(max(len(stage) - 1, 0)), "right")
    last, following = calls[index - 1], calls[index]
    forward = np.isin(stage[last], (Stage.FORWARD, Stage.LOSS)) & (
        flags[last] & (Flag.GRAD | Flag.WITH_LOSS) == Flag.GRAD
    )
    return np.asarray(
        forward & (stage[following] == Stage.BACKWARD) & (index > 0) & (following >= 0)
    )


def _sum(
    pieces: Pieces,
    spans: Records,
    names: dict[int, str],
    boundaries: Boundaries,
    asked: Records,
    left: npt.NDArray[np.bool_],
) -> Steps:
    count, evaluation = len(boundaries.start), boundaries.evaluation
    step = boundaries.step_of(pieces.start)
    inside = (step >= 0) & ~holds(evaluation, pieces.start)
    wall = (
        boundaries.end
        - boundaries.start
        - overlap(boundaries.start, boundaries.end, evaluation[:, 0], evaluation[:, 1])
    )
    stage = _stage_of(pieces, spans)
    stages = _sum_stages(pieces, spans, names, step, inside, count)
    handing = _handing(pieces, spans, step, inside, count)
    if handing.any():
        stages["transport"] = stages["transport"] - handing
        stages["wait"] = stages.get("wait", 0) + handing
    stages["other"] = wall - sum(stages.values(), np.zeros(count, np.int64))
    waits = np.flatnonzero(inside & (stage == Stage.NEXT))
    waiting = Pieces(pieces.start[waits], pieces.end[waits], pieces.owner[waits])
    of = np.searchsorted(asked["start"], waiting.start, "right") - 1
    batches, samples = _fed(asked[~left], spans, boundaries)
    return Steps(
        start=boundaries.start,
        wall=wall,
        stages=stages,
        batches=batches,
        samples=samples,
        boundaries=boundaries,
        waiting=waiting,
        waiting_for=of,
        waiting_in=step[waits],
        asked=asked,
        handing=handing,
        unclaimed=stages["other"] + _may_be_input(pieces, spans, names, step, inside, count),
        computing_loss=_sum_steps(pieces, step, inside & (pieces.owner < 0), count),
        evaluating=round(
            _outside(evaluation[:, 0], evaluation[:, 1], pieces) * boundaries.evaluation_stands_for
        ),
        resident=_resident(spans, boundaries),
    )


def _stage_of(pieces: Pieces, spans: Records) -> IntArray:
    """Return the stage of each piece; that of none is the loss."""
    owned = spans["stage"][np.maximum(pieces.owner, 0)]
    return np.where(pieces.owner < 0, int(Stage.LOSS), owned)


def _sum_stages(
    pieces: Pieces,
    spans: Records,
    names: dict[int, str],
    step: IntArray,
    inside: npt.NDArray[np.bool_],
    count: int,
) -> dict[str, IntArray]:
    """Return name of a stage -> int64 [count], ns of each step.

    Stages of the program's own have names of their own.
    """
    stage, source = _stage_of(pieces, spans), spans["source"][np.maximum(pieces.owner, 0)]
    sums: dict[str, IntArray] = {}
    for key in np.unique(stage[inside]).tolist():
        of_stage = inside & (stage == key)
        if key != Stage.USER:
            parts = [(STAGE_OF_RECORD[Stage(key)], of_stage)]
        else:
            parts = [
                (names.get(number, "stage"), of_stage & (source == number))
                for number in np.unique(source[of_stage]).tolist()
            ]
        for name, chosen in parts:
            sums[name] = sums.get(name, 0) + _sum_steps(pieces, step, chosen, count)
    return sums


def _sum_steps(
    pieces: Pieces, step: IntArray, chosen: npt.NDArray[np.bool_], count: int
) -> IntArray:
    """Return what the chosen pieces take of each step, int64 [count], ns."""
    length = pieces.end[chosen] - pieces.start[chosen]
    return np.bincount(step[chosen], length, count).astype(np.int64)


def _outside(start: IntArray, end: IntArray, pieces: Pieces) -> int:
    """Return how much of these intervals lies in no piece, ns."""
    return int((end - start - overlap(start, end, pieces.start, pieces.end)).sum())


def _may_be_input(
    pieces: Pieces,
    spans: Records,
    names: dict[int, str],
    step: IntArray,
    inside: npt.NDArray[np.bool_],
    count: int,
) -> IntArray:
    """Return the time in which the program may make a batch although it belongs to a stage.

    int64 [count], ns of each step.
    """
    owner = spans[np.maximum(pieces.owner, 0)]
    named = (owner["stage"] == Stage.USER) & np.array(
        [names.get(source) != INPUT for source in owner["source"].tolist()], bool
    )
    bare = (owner["stage"] == Stage.FORWARD) & (owner["flags"] & Flag.BARE != 0)
    chosen = inside & ((pieces.owner < 0) | named | bare)
    return np.bincount(step[chosen], (pieces.end - pieces.start)[chosen], count).astype(np.int64)


def _resident(spans: Records, boundaries: Boundaries) -> npt.NDArray[np.bool_]:
    """Mark the steps in which all that models get was in memory before, bool [n]."""
    forwards = spans[spans["stage"] == Stage.FORWARD]
    at = np.searchsorted(boundaries.start, forwards["start"], "right") - 1
    counts = (at >= 0) & ~holds(boundaries.evaluation, forwards["start"])
    known = forwards["flags"] & Flag.RESIDENT != 0
    old, new = (
        np.bincount(at[counts & which], minlength=len(boundaries.start)) > 0
        for which in (known, ~known)
    )
    return np.asarray(old & ~new)


def _handing(
    pieces: Pieces, spans: Records, step: IntArray, inside: npt.NDArray[np.bool_], count: int
) -> IntArray:
    """Return the transport in which the main thread neither ran nor waited for a CPU.

    int64 [count], ns of each step. It waited for the worker, whose thread that hands tensors over
    waits for Python's lock, for a CPU, or for room in the pipe.
    """
    owner = np.maximum(pieces.owner, 0)
    chosen = inside & (pieces.owner >= 0) & (spans["stage"][owner] == Stage.TRANSPORT)
    chosen &= (spans["cpu"][owner] >= 0) & (spans["runqueue"][owner] >= 0)
    of, length = spans[owner[chosen]], (pieces.end - pieces.start)[chosen]
    blocked = np.clip(1 - (of["cpu"] + of["runqueue"]) / np.maximum(of["wall"], 1), 0, 1)
    return np.bincount(step[chosen], length * blocked, count).astype(np.int64)


def _fed(asked: Records, spans: Records, boundaries: Boundaries) -> tuple[IntArray, IntArray]:
    """Return the batches and samples that were taken in each step, int64 [n] each."""
    count = len(boundaries.start)
    taken = boundaries.step_of(asked["start"])
    known = (taken >= 0) & gave(asked)
    known &= ~holds(boundaries.evaluation, asked["start"])
    # a batch that another thread took is ahead of the step that trains on it: it counts where it
    # was taken
    elsewhere = boundaries.elsewhere
    at = np.clip(np.searchsorted(boundaries.start, elsewhere["start"], "right") - 1, 0, count - 1)
    fed = np.concatenate([taken[known], at])
    sizes = np.concatenate([asked["samples"][known], elsewhere["samples"]])
    trains = (spans["stage"] == Stage.BACKWARD) | (
        (spans["stage"] == Stage.FORWARD) & (spans["flags"] & Flag.GRAD != 0)
    )
    before = (
        int(np.count_nonzero(asked["start"][known] < spans["start"][trains][0]))
        if trains.any()
        else 0
    )
    early = 0 if len(elsewhere) else _taken_early(np.bincount(fed, minlength=count), before)
    fed, sizes = fed[early:], sizes[early:]
    return np.bincount(fed, minlength=count), np.bincount(fed, sizes, count).astype(np.int64)


def _taken_early(batches: IntArray, before: int) -> int:
    """Return how many batches were taken before the training and not for it.

    Such are the pictures that a GAN is shown with. They are what the first step has more than each
    of the others, which all have the same. Where a loader fetches ahead, the last one has fewer;
    where a step has several forwards, as after an update that a gradient scaler left out, batches
    come between them, too.

    Args:
        batches: int64 [steps], taken in each.
        before: taken before the first forward.
    """
    if len(batches) < _FEWEST or not batches[1] or (batches[1:] != batches[1]).any():
        return 0
    return max(0, min(int(batches[0]), before) - int(batches[1]))


def _taken_out(making: Making, stages: dict[str, IntArray]) -> dict[str, IntArray]:
    """Return the steps' stages, with what making took in one of its own."""
    left, whole = dict(stages), stages.get(STAGE, 0) + np.zeros(len(making.looked), np.int64)
    for name, took in making.took.items():
        if name in stages:
            usual = round(float(took[making.looked].mean()))
            part = np.minimum(np.where(making.looked, took, usual), stages[name])
            left[name] = stages[name] - part
            whole += part
    return {**left, STAGE: whole}
