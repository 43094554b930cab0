"""Tests whether one arm is better than another:

Welch's test over the seeds, with Holm's correction for several questions.
"""

import math
import warnings
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

LEVEL = 0.05


@dataclass(frozen=True)
class Difference:
    """The mean of one group minus that of another.

    Attributes:
        mean: in the unit of the values.
        low, high: 95 % interval (Welch); None where a group has one value, or none differs.
        p: of Welch's t-test, two-sided; None as above.
        paired_p: of the paired t-test, where both groups have the same seeds. The seed draws the
            weights of both arms, so pairs can be closer than their groups; None where pairs cannot
            be made or do not differ.
    """

    mean: float
    low: float | None
    high: float | None
    p: float | None
    paired_p: float | None


def difference(ours: Sequence[float], theirs: Sequence[float]) -> Difference:
    """Compare two groups of independent values (Welch, 1947). Values of the same seed are at the
    same index.

    Raises:
        ValueError: a group is empty.
    """
    from scipy import stats

    if not ours or not theirs:
        raise ValueError("a group without values has no mean")
    a, b = np.asarray(ours, dtype=np.float64), np.asarray(theirs, dtype=np.float64)
    mean = float(a.mean() - b.mean())
    paired = _paired(a, b) if len(a) == len(b) else None
    if min(len(a), len(b)) < 2 or not np.isfinite([*a, *b]).all():
        return Difference(mean, None, None, None, None)
    of_a, of_b = a.var(ddof=1) / len(a), b.var(ddof=1) / len(b)
    if of_a + of_b == 0:
        return Difference(mean, None, None, None, None)
    freedom = (of_a + of_b) ** 2 / (of_a**2 / (len(a) - 1) + of_b**2 / (len(b) - 1))
    reach = float(stats.t.ppf(1 - LEVEL / 2, freedom)) * math.sqrt(of_a + of_b)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)  # values that hardly differ
        p = float(stats.ttest_ind(a, b, equal_var=False).pvalue)
    return Difference(mean, mean - reach, mean + reach, p, paired)


def _paired(a: np.ndarray, b: np.ndarray) -> float | None:
    from scipy import stats

    if len(a) < 2 or not np.ptp(a - b) > 0:
        return None
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)
        return float(stats.ttest_rel(a, b).pvalue)


def holm(p_values: Sequence[float]) -> list[float]:
    """p values corrected for their number, so that at most 5 % of tables have any wrong one below
    0.05 (Holm, 1979).
    """
    corrected = [0.0] * len(p_values)
    largest = 0.0
    for rank, index in enumerate(sorted(range(len(p_values)), key=p_values.__getitem__)):
        largest = max(largest, min(1.0, (len(p_values) - rank) * p_values[index]))
        corrected[index] = largest
    return corrected
