"""Finds the period of a sequence of times or names, for traces that do not mark where a step begins."""

import numpy as np
import numpy.typing as npt

from feedline.analysis.intervals import IntArray

FEWEST = 3  # repetitions that are a pattern
_EVEN = 0.3  # standard deviation of the periods over their mean, above which nothing repeats
_CLEFT = 4.0  # times the gap within a burst that the gap between two must be
_MATCHING = 0.9  # share of names that come again one period later
_LONGEST = 4096  # collectives of a step: more are not looked for


def bursts(start: IntArray, end: IntArray) -> IntArray | None:
    """Where each burst of events ends, if bursts come evenly: the optimizer's kernels once a step.

    Args:
        start, end: int64 [n], ns, sorted by start.

    Returns:
        int64 [k], indices of the last event of each burst; None: there are fewer than FEWEST, or they do not come evenly.
    """
    if len(start) < FEWEST:
        return None
    gaps = np.maximum(start[1:] - np.maximum.accumulate(end)[:-1], 0)
    ordered = np.sort(gaps)
    rise = ordered[1:] / np.maximum(ordered[:-1], 1)
    if len(rise) and rise.max() >= _CLEFT:  # the widest cleft between short gaps and long ones
        above = ordered[int(np.flatnonzero(rise >= _CLEFT)[-1]) + 1]
        last = np.append(np.flatnonzero(gaps >= above), len(start) - 1)
    else:
        last = np.arange(len(start))
    return last if even(end[last]) else None


def even(times: IntArray) -> bool:
    """Whether these times, int64 [n] sorted, are at least FEWEST and about equally far apart."""
    if len(times) < FEWEST:
        return False
    periods = np.diff(times)
    return bool(periods.std() <= _EVEN * periods.mean())


def period(words: npt.NDArray[np.int64]) -> int | None:
    """The period of a sequence of words: 3 for a b b a b b a b b. None: it does not repeat, or all words are alike.

    Args:
        words: int64 [n], a number for each different word.
    """
    for length in range(2, min(len(words) // FEWEST, _LONGEST) + 1):
        if (words[length:] == words[:-length]).mean() >= _MATCHING:
            return length if len(np.unique(words[:length])) > 1 else None
    return None
