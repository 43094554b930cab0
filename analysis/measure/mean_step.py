"""How well the mean step of a run is known, and with it the measured throughput.

It follows from how its steps scatter, and how they drift.
"""

import math

import numpy as np
import numpy.typing as npt

from feedline.analysis.measure.gather import RankMetrics
from feedline.analysis.measure.noise import FEWEST, FloatArray, drift, error_of_mean, reach
from feedline.analysis.measure.rested import FEWEST as FEWEST_RESTS


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

    Of a run whose steps were mostly counted, these are the mean steps of its rests.
    """
    rests = rank.counted
    some = rests.steps > 0
    if rank.estimate is None or some.sum() < max(FEWEST, FEWEST_RESTS):
        return walls_of(rank)
    return np.asarray((rests.end - rests.start)[some] / rests.steps[some])


def relative(series: FloatArray) -> tuple[float, float]:
    """Return the relative error of a mean, and what the machine did to it meanwhile.

    NaN: too few values.
    """
    error, mean = error_of_mean(series), float(series.mean()) if len(series) else 0.0
    return (error / mean, drift(series) / mean) if mean > 0 else (math.nan, 0.0)


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
