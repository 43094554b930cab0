"""What a process kept of its time that forgot windows of steps (store/segment.py).

Kept windows are a sample of the run. What is summed over them is multiplied by what the exact totals
of the segment know, and what spans a gap between them is cut at it.
"""

from collections.abc import Mapping

import numpy as np

from feedline.analysis.intervals import NONE, BoolArray, IntArray, union
from feedline.profiler.events import Flag, Stage
from feedline.profiler.store.layout import WINDOW
from feedline.profiler.store.record_columns import Records
from feedline.profiler.store.segment_reader import Process

_BATCH_OF_PASS = (1 << 32) - 1  # of a batch key (profiler/events.py)
#: What updates the parameters, by how steps were cut (``Boundaries.by``).
UPDATES = {"optimizer": Stage.OPTIMIZER, "backward": Stage.BACKWARD, "loader": Stage.NEXT}


def times(main: Process, stage: Stage, kept: int) -> float:
    """Return how often a stage occurred for each of these records of it, 1 or more.

    It is 1 where no window was forgotten.
    """
    known = main.stride > 1 and kept
    return max(main.total(stage)["records"] / kept, 1.0) if known else 1.0


def _times_trained(main: Process, by: str) -> float:
    """Return how often training happened for each time that was kept, 1 or more.

    Args:
        by: how steps were cut.
    """
    return times(main, UPDATES[by], len(main.of(UPDATES[by])))


def times_beside(main: Process, stage: Stage, trains: BoolArray, by: str) -> float:
    """Return the same of what a stage did beside the training: what its total leaves to that.

    Args:
        trains: [records of that stage], of the training.
        by: how steps were cut.
    """
    beside = int(np.count_nonzero(~trains))
    if main.stride == 1 or not beside:
        return 1.0
    trained = int(np.count_nonzero(trains)) * _times_trained(main, by)
    return max((main.total(stage)["records"] - trained) / beside, 1.0)


def batches_stand_for(main: Process, training: frozenset[int], by: str) -> dict[int, float]:
    """Return how many batches each that was kept of a loader stands for, by its number.

    Args:
        training: numbers of the loaders that feed the steps.
        by: how steps were cut.
    """
    asked = main.of(Stage.NEXT)
    trains, ends = np.isin(asked["source"], list(training)), asked["flags"] & Flag.END != 0
    of_training, beside = _times_trained(main, by), times_beside(main, Stage.NEXT, trains, by)
    if trains.all() and main.stride > 1 and not ends.all():  # steps may be longer than windows
        ended = main.total(Stage.EPOCH)["records"] if ends.any() else 0
        batches = main.total(Stage.NEXT)["records"] - ended
        of_training = max(batches / int(np.count_nonzero(~ends)), 1.0)
    return {
        loader: of_training if loader in training else beside
        for loader in np.unique(asked["source"]).tolist()
    }


def passes(main: Process, stand_for: Mapping[int, float]) -> dict[int, int]:
    """Return how many passes over each loader were begun, by its number.

    Of a run that forgot windows, all passes together are known: they are divided by how many
    batches each loader gave, and how many a pass over it has.

    Args:
        stand_for: batches that each that was kept stands for, by loader.
    """
    begun, asked = main.of(Stage.EPOCH), main.of(Stage.NEXT)
    if main.stride == 1:
        loaders, number = np.unique(begun["source"], return_counts=True)
        return dict(zip(loaders.tolist(), number.tolist()))
    expected = {}
    for loader, each in stand_for.items():
        own = asked[asked["source"] == loader]
        ends = own[own["flags"] & Flag.END != 0]["number"] & _BATCH_OF_PASS
        batches = (own["number"] & _BATCH_OF_PASS).max() + 1
        of_a_pass = float(ends.mean()) if len(ends) else float(batches)
        expected[loader] = max(len(own) - len(ends), 1) * each / max(of_a_pass, 1.0)
    every = main.total(Stage.EPOCH)["records"] / (sum(expected.values()) or 1.0)
    return {loader: max(round(number * every), 1) for loader, number in expected.items()}


def _pass_of(records: Records) -> IntArray:
    """Return the number of the pass that each request or begin is of, int64 [n]."""
    number = records["number"]
    return np.where(records["stage"] == Stage.EPOCH, number, number >> 32)


def moments(main: Records, stride: int) -> IntArray:
    """Return the time of which all was kept, int64 [k, 2], ns, disjoint and sorted.

    A window begins when its first batch has come, or with the pass over the loader.

    Args:
        main: records of what happened in the main thread.
        stride: N, if one in N windows was kept.
    """
    main = main[_in_one_window(main)]
    if not len(main):
        return NONE
    ends, asks = main["start"] + np.maximum(main["wall"], 0), main["stage"] == Stage.NEXT
    # a request changes the window when it returns: what was done inside is of the window before
    at = np.where(asks, ends, main["start"])
    order = np.argsort(at, kind="stable")
    main, at, asks, ends = main[order], at[order], asks[order], ends[order]
    window = main["window"].astype(np.int64)
    begins = main["stage"] == Stage.EPOCH
    first = np.flatnonzero(np.append(True, (window[1:] != window[:-1]) | begins[1:]))
    last = np.append(first[1:], len(main)) - 1
    kept = window[first] & (stride - 1) == 0
    reach = np.maximum.reduceat(ends, first)
    # up to the next one, where nothing was forgotten in between
    asked = np.maximum.accumulate(np.where(asks, np.arange(len(main)), -1))[last[:-1]]
    follows = first[1:]
    known = asked >= first[:-1]
    before, after = main[asked], main[follows]
    goes_on = known & asks[follows] & (before["source"] == after["source"])
    goes_on &= before["number"] + 1 == after["number"]
    window_full = known & ((before["number"] & _BATCH_OF_PASS) % WINDOW == WINDOW - 1)
    window_full &= before["flags"] & Flag.END == 0
    new_pass = begins[follows] & ~window_full & _no_pass_between(main, follows)
    without_gap = kept[:-1] & (new_pass | (kept[1:] & goes_on))
    reach[:-1] = np.where(without_gap, np.maximum(reach[:-1], at[follows]), reach[:-1])
    begun = at[first]
    begun[0] = main["start"].min()  # nothing was forgotten before
    return union(begun[kept], reach[kept])


def _in_one_window(main: Records) -> BoolArray:
    """Return which records lie in the window that they are written down for, bool [n]."""
    stage = main["stage"]
    asks, start = stage == Stage.NEXT, main["start"]
    ends = start + np.maximum(main["wall"], 0)
    changes = np.sort(ends[asks])
    across = np.searchsorted(changes, start, "right") < np.searchsorted(changes, ends)
    # stages of the program may be longer, and others are kept for good as of the first window
    elsewhere = np.isin(stage, (Stage.USER, Stage.BEGUN, Stage.SUMS))
    return np.asarray(~elsewhere & (asks | (stage == Stage.EPOCH) | ~across))


def _no_pass_between(main: Records, places: IntArray) -> BoolArray:
    """Return before which of these places all passes are known that were begun, bool [n].

    Of each loader, the next pass that is seen is the one after the last that was seen before.

    Args:
        main: records [m] in order.
        places: int64 [n], indices of records.
    """
    asks = np.isin(main["stage"], (Stage.EPOCH, Stage.NEXT))
    known = np.ones(len(places), bool)
    for loader in np.unique(main["source"][asks]).tolist():
        seen = np.flatnonzero(asks & (main["source"] == loader))
        number, ended = _pass_of(main[seen]), bool(main["flags"][seen[-1]] & Flag.END)
        after = np.searchsorted(seen, places)
        last = np.append(-1, number)[after]
        following = np.append(number, number[-1] + 1 if ended else -1)[after]
        known &= following == last + 1
    return known
