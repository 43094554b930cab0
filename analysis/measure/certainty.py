"""How well the mean step of a run is known, and the share of it that the input takes.

It follows from how its steps scatter, and how they drift. A few steps, or steps that vary, say
nothing.
"""

import math
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt

from feedline.analysis.intervals import FloatArray, IntArray
from feedline.analysis.measure.machine_use import queued_ns
from feedline.analysis.measure.model import Certainty, Unseen
from feedline.analysis.measure.noise import MIN_COMPARED, drift, error_of_mean, reach
from feedline.analysis.measure.rank_metrics import RankMetrics
from feedline.analysis.measure.stages import INPUT_STAGES, OTHER
from feedline.analysis.measure.waits import classify
from feedline.profiler.events import Stage
from feedline.profiler.noise_scale import student

_FEWEST = 2  # steps that have an interval
_MIN_SHARE = 0.05  # of steps that were only counted, which is left to chance


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
