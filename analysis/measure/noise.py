"""How well a mean over autocorrelated values is known, and which differences are no noise.

Of a run, these are its mean step and the share of it that the input takes.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from statistics import NormalDist
from typing import Any

import numpy as np
import numpy.typing as npt

from feedline.analysis.intervals import FloatArray, IntArray
from feedline.analysis.measure.model import Certainty, Unseen
from feedline.analysis.measure.rank_metrics import RankMetrics, queued_ns
from feedline.analysis.measure.stages import INPUT_STAGES, OTHER
from feedline.analysis.measure.waits import classify
from feedline.profiler.events import Stage
from feedline.profiler.noise_scale import student

MIN_VALUES = 8  # values, below which nothing is said of a mean (the report's own limit for steps)
_STRETCHES = 8  # of a run, for its drift
# values, below which nothing is said of how another run would differ
MIN_COMPARED = 2 * _STRETCHES
_DRAWS = 400  # of the bootstrap of a quantile
_NORMAL = NormalDist()
_FEWEST = 2  # steps that have an interval
_MIN_SHARE = 0.05  # of steps that were only counted, which is left to chance


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


def _error_of_mean(values: FloatArray) -> float:
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


def _drift(values: FloatArray) -> float:
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


def counted_in(rank: RankMetrics) -> "npt.NDArray[np.bool_]":
    """Mark the steps whose values say how the mean step varies, bool [steps]."""
    assert rank.steps is not None
    return (
        rank.estimate.alike
        if rank.estimate is not None
        else np.arange(len(rank.steps.wall)) >= rank.first
    )


def walls_of(rank: RankMetrics) -> FloatArray:
    """Return the wall times of those steps, float64 [n], ns."""
    assert rank.steps is not None
    return (
        rank.estimate.walls()
        if rank.estimate is not None
        else rank.steps.wall[counted_in(rank)].astype(float)
    )


def means_of(rank: RankMetrics) -> FloatArray:
    """Return the times of which the mean step is the mean, float64 [n], ns.

    Of a run whose steps were mostly counted, these are the mean steps of its rests; where the rests
    are too few to tell its drift, the recorded steps, unless stalls lie between these.
    """
    rests = rank.counted
    some = rests.steps > 0
    if rank.estimate is None or some.sum() < MIN_COMPARED and not rank.estimate.longer:
        return walls_of(rank)
    return np.asarray((rests.end - rests.start)[some] / rests.steps[some])


def relative(series: FloatArray) -> tuple[float, float]:
    """Return the relative error of a mean, and what the machine did to it meanwhile.

    NaN: too few values.
    """
    error, mean = _error_of_mean(series), float(series.mean()) if len(series) else 0.0
    return (error / mean, _drift(series) / mean) if mean > 0 else (math.nan, 0.0)


def half_width(error: float, of_machine: float) -> float:
    """Return half the 95 % interval, relative; not finite: not known."""
    return reach(math.hypot(error, of_machine if math.isfinite(of_machine) else 0.0))


def interval_of_rate(rate: float, half: float) -> tuple[float | None, float | None]:
    """Return the 95 % interval of a rate, from that of the mean step; None: that end is unknown.

    Args:
        half: of ``half_width``.
    """
    if not math.isfinite(half):
        return None, None
    return rate / (1 + half), rate / (1 - half) if half < 1 else None


def certainty(rank: RankMetrics, starts_once: bool) -> Certainty | None:
    """Return the share of the step that the input takes, with its interval; None without a step.

    Args:
        starts_once: the loader was started once, which does not count as waiting for it.
    """
    steps = rank.steps
    if steps is None or not len(steps.wall):
        return None
    parts = {name: values.astype(float) for name, values in rank.stages.items()}
    if starts_once:
        parts |= {
            "epoch_start": np.zeros(len(steps.wall)),
            "wait": parts.get("wait", 0.0) - classify(steps, rank.ready)["first_batch"],
        }
    low, high = _interval(rank, parts, steps.wall.astype(float))
    number = rank.estimate.stand_for if rank.estimate is not None else len(steps.wall) - rank.first
    if steps.making is not None:  # how long its functions wait for a CPU is not known
        return Certainty(number, low, high)
    inside = queued_ns(rank.main, steps, Stage.NEXT)
    queued = queued_ns(rank.main, steps, Stage.NEXT, Stage.FORWARD, Stage.BACKWARD)
    return Certainty(
        number,
        low,
        high,
        *_interval(
            rank, _without(parts, inside, queued - inside), (steps.wall - queued).astype(float)
        ),
    )


def _waiting(parts: Mapping[str, FloatArray | float]) -> Any:
    """Return the sum of the input's stages, whatever is given of each stage; 0 without any."""
    return sum(values for name, values in parts.items() if name in INPUT_STAGES)


def _without(
    parts: dict[str, FloatArray], inside: IntArray, elsewhere: IntArray
) -> dict[str, FloatArray]:
    """Take waiting for a CPU out of the stages of each step.

    It goes out of the input's stages and of the others, in proportion.

    Args:
        inside: int64 [steps], ns, in the input's stages.
        elsewhere: the same, in the others.
    """
    waiting = _waiting(parts)
    of_input = _share_left(waiting, inside)
    of_others = _share_left(sum(parts.values(), np.zeros(len(inside))) - waiting, elsewhere)
    return {
        name: values * (of_input if name in INPUT_STAGES else of_others)
        for name, values in parts.items()
    }


def _share_left(whole: FloatArray, taken: IntArray) -> FloatArray:
    return np.maximum(whole - taken, 0.0) / np.maximum(whole, 1.0)


def unseen(rank: RankMetrics) -> Unseen | None:
    """Return what may be input without a loader; None without a step."""
    steps, estimate = rank.steps, rank.estimate
    if steps is None or not len(steps.wall):
        return None
    may_be = steps.unclaimed[rank.first :].astype(float)
    wall = steps.wall[rank.first :].astype(float)
    share = float(may_be.sum()) / float(wall.sum()) if wall.sum() > 0 else 1.0
    high, counted = interval(may_be, wall)[1], 0.0
    if estimate is not None:
        # steps that were only counted may have taken longer, for reasons that nothing tells
        counted = max(1 - float(estimate.walls().mean()) / estimate.mean_ns, 0.0)
        # or have less between spans, where the recording of the others lies
        shown = float(rank.stages[OTHER][rank.first :].sum()) / float(wall.sum() or 1.0)
        share -= max(shown - estimate.means(rank.stages)[OTHER] / estimate.mean_ns, 0.0)
        most = float(np.quantile(estimate.drawn(rank.stages)[OTHER], 0.975))
        high -= max(shown - most, 0.0)
    return Unseen(
        min(max(share, 0.0) + counted, 1.0),
        min(max(high, share, 0.0) + counted, 1.0),
        bool(steps.resident[rank.first :].all()) and counted < _MIN_SHARE,
    )


def _interval(
    rank: RankMetrics, parts: Mapping[str, FloatArray], wall: FloatArray
) -> tuple[float, float]:
    """Return the interval of the share that the input takes.

    Args:
        parts: stages, of which those of the input count, float64 [steps] each.
        wall: the whole steps.
    """
    looked = (
        np.ones(len(wall), bool)
        if rank.steps is None or rank.steps.making is None
        else rank.steps.making.looked
    )
    if rank.estimate is None:
        return interval(
            np.broadcast_to(_waiting(parts), wall.shape)[rank.first :],
            wall[rank.first :],
            looked[rank.first :],
        )
    alike = rank.estimate.alike & looked
    known = replace(rank.estimate, alike=alike) if alike.sum() >= _FEWEST else rank.estimate
    low, high = np.quantile(_waiting(known.drawn(parts)), (0.025, 0.975))
    # of all steps, of which those that were looked at are a choice
    share = _waiting(rank.estimate.means(parts)) / rank.estimate.mean_ns
    unattributed = rank.estimate.unattributed_share(rank.stages)
    return min(float(low), share), min(max(float(high), share) + unattributed, 1.0)


def interval(
    part: FloatArray, whole: FloatArray, looked: npt.NDArray[np.bool_] | None = None
) -> tuple[float, float]:
    """Return the 95 % interval of sum(part) / sum(whole) over steps.

    It is Student's t over the steps' residuals (Cochran, Sampling Techniques, 6.4).

    Args:
        part, whole: float64 [n].
        looked: bool [n], of the steps whose part was measured, and does not stand in for it; None:
            all.
    """
    seen = np.ones(len(whole), bool) if looked is None else looked
    number, total = int(seen.sum()), float(whole[seen].sum())
    if number < _FEWEST or total <= 0:
        return 0.0, 1.0
    residuals = part[seen] - float(part[seen].sum()) / total * whole[seen]
    half = (
        student(number - 1) * float(np.sqrt((residuals**2).sum() * number / (number - 1))) / total
    )
    share = float(part.sum()) / float(whole.sum())
    return max(share - half, 0.0), min(share + half, 1.0)
