"""How well a mean over autocorrelated values is known, and which differences are no noise."""

import math
from collections.abc import Callable, Sequence
from statistics import NormalDist

import numpy as np

from feedline.analysis.intervals import FloatArray
from feedline.profiler.noise_scale import student

MIN_VALUES = 8  # values, below which nothing is said of a mean (the report's own limit for steps)
_STRETCHES = 8  # of a run, for its drift
# values, below which nothing is said of how another run would differ
MIN_COMPARED = 2 * _STRETCHES
_DRAWS = 400  # of the bootstrap of a quantile
_NORMAL = NormalDist()


def _block_length(values: FloatArray) -> int:
    """Return how many neighbours belong together.

    It is the automatic choice of Politis and White (Econometric Reviews 23(1), 2004) for the
    circular block bootstrap, with the correction of Patton, Politis and White (2009).

    Args:
        values: float64 [n], in order of time.
    """
    n = len(values)
    centred = values - values.mean()
    variance = float(centred @ centred) / n
    most = max(1, min(math.ceil(3 * math.sqrt(n)), n // 3))
    if n < MIN_VALUES or variance <= 0:
        return 1
    lags = min(n - 1, max(5, math.ceil(math.sqrt(math.log10(n)))) + math.ceil(math.sqrt(n)))
    covariance = np.array(
        [float(centred[: n - lag] @ centred[lag:]) / n for lag in range(lags + 1)]
    )
    bandwidth = min(2 * _last_correlated(covariance / variance, n), lags)
    if not bandwidth:
        return 1
    lag = np.arange(1, bandwidth + 1)
    window = np.minimum(1.0, 2 * (1 - lag / bandwidth)).clip(0.0)
    g = 2 * float((window * lag * covariance[1 : bandwidth + 1]).sum())
    spectrum = covariance[0] + 2 * float((window * covariance[1 : bandwidth + 1]).sum())
    if spectrum <= 0:
        return 1
    return min(
        most, max(1, math.ceil((2 * g**2 / (4 / 3 * spectrum**2)) ** (1 / 3) * n ** (1 / 3)))
    )


def _last_correlated(correlation: FloatArray, n: int) -> int:
    """Return the last lag before several in a row are not correlated, 0 if the first are not."""
    row = max(5, math.ceil(math.sqrt(math.log10(n))))
    small = np.abs(correlation[1:]) < 2 * math.sqrt(math.log10(n) / n)
    for lag in range(len(small) - row + 1):
        if small[lag : lag + row].all():
            return lag
    large = np.flatnonzero(~small)
    return int(large[-1]) + 1 if len(large) else 0


def error_of_mean(values: FloatArray) -> float:
    """Return the standard error of the mean of autocorrelated values.

    It is that of the circular block bootstrap, which for a mean needs no draws (Lahiri, Resampling
    Methods for Dependent Data, 2003, section 3.1). NaN for fewer than ``MIN_VALUES`` values.

    Args:
        values: float64 [n], in order of time.
    """
    n = len(values)
    if n < MIN_VALUES:
        return math.nan
    length = _block_length(values)
    sums = np.concatenate([[0.0], np.cumsum(np.concatenate([values, values[: length - 1]]))])
    blocks = (sums[length:] - sums[:-length]) / length
    own = float(((blocks - values.mean()) ** 2).mean()) * length / n
    return math.sqrt(own * n / max(n - length, 1))


def error_of(statistic: Callable[[FloatArray], FloatArray], values: FloatArray) -> float:
    """Return the standard error of a median or another quantile, by the circular block bootstrap.

    Args:
        statistic: of float64 [draws, n], along the last axis.
        values: float64 [n], in order of time.
    """
    n = len(values)
    if n < MIN_VALUES:
        return math.nan
    length = _block_length(values)
    starts = np.random.default_rng(0).integers(n, size=(_DRAWS, math.ceil(n / length)))
    drawn = ((starts[:, :, None] + np.arange(length)) % n).reshape(_DRAWS, -1)[:, :n]
    return float(statistic(values[drawn]).std(ddof=1))


def drift(values: FloatArray) -> float:
    """Return how far stretches of a run move beyond the scatter of single values.

    This standard deviation stands for how another run of the same program differs. Slow noise has
    about as much variance at each longer time scale (flicker noise), so another run is off by at
    least what stretches of this one are, however long both are. Of simulated pairs of identical
    runs of autoregressive noise (0.9), 0 to 2 % differ at the 5 % level with it, and 25 % without;
    of noise at all time scales, up to eight times the run's, 12 % and 50 %
    (tests/diff/test_noise.py). NaN for fewer than ``MIN_COMPARED`` values.

    Args:
        values: float64 [n], in order of time.
    """
    if len(values) < MIN_COMPARED:
        return math.nan
    means = np.array([stretch.mean() for stretch in np.array_split(values, _STRETCHES)])
    return math.sqrt(
        max(0.0, float(means.var(ddof=1)) - _STRETCHES * float(values.var()) / len(values))
    )


def p_of(effect: float, error: float, freedom: int | None = None) -> float:
    """Return the two-sided p value of an effect.

    It is normal, or of Student's t with these degrees of freedom (Wallace's approximation, Annals
    of Mathematical Statistics 30(4), 1959; within 0.002 of the exact value).
    """
    if not (math.isfinite(effect) and math.isfinite(error)):
        return 1.0
    if error <= 0:
        return 1.0 if effect == 0 else 0.0
    z = abs(effect) / error
    if freedom is not None:
        z = (8 * freedom + 1) / (8 * freedom + 3) * math.sqrt(freedom * math.log1p(z * z / freedom))
    return 2 * _NORMAL.cdf(-z)


def reach(error: float, freedom: int | None = None) -> float:
    """Return half the width of a 95 % interval."""
    return error * (1.959964 if freedom is None else student(freedom))


def holm(ps: Sequence[float]) -> list[float]:
    """Return p values corrected for how many there are.

    Holm, Scandinavian Journal of Statistics 6(2), 1979.
    """
    corrected, least = [0.0] * len(ps), 0.0
    for rank, at in enumerate(sorted(range(len(ps)), key=ps.__getitem__)):
        least = max(least, min(1.0, (len(ps) - rank) * ps[at]))
        corrected[at] = least
    return corrected
