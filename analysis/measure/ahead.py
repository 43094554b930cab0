"""Batches that were fetched for training and then not trained on.

A loop fetched them ahead, and ended before its loader.
"""

from collections.abc import Iterator

import numpy as np
import numpy.typing as npt

from feedline.analysis.intervals import IntArray
from feedline.analysis.measure.boundaries import pass_of
from feedline.profiler.events import Flag, Stage
from feedline.profiler.store.record_columns import Records


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
        keys = pass_of(asked[own])
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
