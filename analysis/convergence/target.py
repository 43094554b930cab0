"""Samples, updates and time to a target at another batch and number of workers.

They are S(B) from the noise scale times the time of a step. Throughput alone says what N workers
read in a second; here each of their samples teaches less, the larger their batch.
"""

from dataclasses import dataclass

import numpy as np

from feedline.analysis.convergence.curves import running_mean
from feedline.analysis.convergence.training_record import (
    BatchPrice,
    Curve,
    NoiseOverTraining,
    TimeToTarget,
)
from feedline.analysis.text.formatting import count, number

#: Part of a curve's values that one is smoothed with.
_SMOOTHING = 0.02
#: Standard errors to either side of the smoothed curve: its crossings are the ends of the interval.
_STEP_TIME_ERRORS = 2.0
#: The noise scale stands for the critical batch only to within such a factor: 38 to 54 where what
#: was measured follows 131 (docs/measured/time-to-target.md). McCandlish and others speak of the
#: same order of magnitude.
_PROXY = 3.0
DOUBT = (
    "The noise scale only approximates the critical batch size (Merrill et al., "
    "arXiv:2505.23971): trust only its order of magnitude"
)
#: Beyond these multiples of the ends of the noise scale's range, a batch is far off: at twice the
#: upper end, 2 of 3 samples are wasted; at a third of the lower end, doubling the batch still saves
#: 37 % of the updates.
_FAR_ABOVE, _FAR_BELOW = 2.0, 1 / 3


@dataclass(frozen=True)
class Reached:
    """When a curve came to a target; all None where it did not, and ``why`` says so.

    Attributes:
        updates, samples, at_s: by the smoothed curve.
        low, high: updates by the curve two standard errors better and worse; without high: worse,
            it does not come there.
    """

    updates: float | None
    samples: float | None
    at_s: float | None
    low: float | None
    high: float | None
    why: str = ""


@dataclass(frozen=True)
class StepTime:
    """Mean seconds of an update on this number of ranks.

    ``source`` says "measured", or whose prediction it is.
    """

    workers: int
    step_s: float | None
    low: float | None
    high: float | None
    source: str


def steps_to_target(
    curve: Curve, target: float, *, rising: bool = False, smoothing: float = _SMOOTHING
) -> Reached:
    """Find the first update at which the smoothed curve is at the target or past it.

    Args:
        curve: values by update.
        target: the value to come to.
        rising: more is better, as of an accuracy.
        smoothing: part of the values that one is the mean of, itself and those before it.

    Raises:
        ValueError: a target that is not a finite number, or smoothing outside 0 to 1.
    """
    if not np.isfinite(target) or not 0 <= smoothing <= 1:
        raise ValueError(
            f"a target is a finite number and smoothing a share, not {target} and {smoothing}"
        )
    fine = np.isfinite(curve.values)
    values = curve.values[fine] if rising else -curve.values[fine]
    goal = target if rising else -target
    if not len(values):
        return Reached(None, None, None, None, None, "the curve has no finite value")
    width = max(1, round(smoothing * len(values)))
    smoothed = running_mean(values, width)
    # median |x - y| of two normal draws: 0.954 sigma
    scatter = float(np.median(np.abs(np.diff(values)))) / 0.954 if width > 1 else 0.0
    error = _STEP_TIME_ERRORS * scatter / width**0.5
    first = [_first(smoothed + shift, goal) for shift in (error, 0.0, -error)]
    updates, samples, at_s = (
        column[fine] for column in (curve.updates.astype(float), curve.samples, curve.at_s)
    )
    if first[1] is None:
        best = float(smoothed.max() if rising else -smoothed.max())
        return Reached(
            None,
            None,
            None,
            None,
            None,
            f"the curve never reaches {number(target)}; its best value is {number(best)}",
        )
    low, high = (None if bound is None else float(updates[bound]) for bound in (first[0], first[2]))
    return Reached(
        float(updates[first[1]]), float(samples[first[1]]), float(at_s[first[1]]), low, high
    )


def _first(values: np.ndarray, goal: float) -> int | None:
    there = np.flatnonzero(values >= goal)
    return int(there[0]) if len(there) else None


def _updates_at(updates: float, base_batch: float, batch: float, critical: float) -> float:
    """Return S(B) = S(B0) (1 + Bc/B) / (1 + Bc/B0).

    It follows from S = Smin (1 + Bc/B) (McCandlish and others, arXiv:1812.06162, section 2.3).
    """
    return updates * (1 + critical / batch) / (1 + critical / base_batch)


def time_to_target(
    reached: Reached, base_batch: float, batch: float, noise: NoiseOverTraining, step: StepTime
) -> TimeToTarget:
    """Predict how long another batch takes to the target, from a run and its noise scale.

    The band joins the ends of all: when the curve came to the target, the noise scale's range over
    the training, what it is worth as a proxy of the critical batch (_PROXY, either way), and the
    step's time. It has no upper end where two standard errors decide whether the curve comes there.

    Args:
        reached: of the run at ``base_batch``.
        base_batch: samples per update of the run, all workers together.
        batch: samples per update that are asked about.
        noise: noise scale of the run.
        step: seconds of a step with ``batch``.
    """
    nothing = (None, None, None, None, None, None)
    if reached.updates is None:
        return TimeToTarget(step.workers, batch, *nothing, step.source, reached.why)
    if noise.value is None and batch != base_batch:
        return TimeToTarget(
            step.workers, batch, *nothing, step.source, f"the noise scale is unknown: {noise.why}"
        )
    value = noise.value or 0.0
    criticals = [
        value,
        (value if noise.low is None else noise.low) / _PROXY,
        (value if noise.high is None else noise.high) * _PROXY,
    ]
    updates = _updates_at(reached.updates, base_batch, batch, criticals[0])
    ends = [
        _updates_at(of, base_batch, batch, critical)
        for of in (
            reached.updates if reached.low is None else reached.low,
            reached.updates if reached.high is None else reached.high,
        )
        for critical in criticals
    ]
    low, high = min(ends), None if reached.high is None else max(ends)
    if step.step_s is None:
        return TimeToTarget(
            step.workers,
            batch,
            updates,
            low,
            high,
            None,
            None,
            None,
            step.source,
            f"unknown step time: {step.source}",
        )
    fast = step.step_s if step.low is None else step.low
    slow = step.step_s if step.high is None else step.high
    return TimeToTarget(
        step.workers,
        batch,
        updates,
        low,
        high,
        updates * step.step_s,
        low * fast,
        None if high is None else high * slow,
        step.source,
    )


def _says(
    noise: NoiseOverTraining, batch: float, where: str, spent: float | None, factor: float | None
) -> str:
    """Return what to say of a batch, without the last full stop.

    ``where``, ``spent`` and ``factor``: as where, samples_factor and updates_factor of BatchPrice.
    """
    if where == "unknown":
        return (
            f"the cost of the batch of {count(batch)} is unknown: "
            f"{noise.why or 'the noise scale is too uncertain'}"
        )
    if noise.value is None:
        bound = (
            f"at least {number(noise.low)}"
            if noise.low is not None
            else f"at most {number(noise.high)}"
        )
        return (
            f"the batch of {count(batch)} is {where} the critical batch size, which is "
            f"{bound}: {noise.why}"
        )
    return (
        f"the batch of {count(batch)} is {where} the critical batch size, about "
        f"{number(noise.value)} ({number(noise.low)} to {number(noise.high)} over the training). "
        f"For equal loss, it needs about {number(spent, 2)} times the samples of a very small "
        f"batch. It needs about {number(factor, 2)} times the updates of a very large one"
    )


def price_batch(noise: NoiseOverTraining, batch: float) -> BatchPrice:
    """Return what a batch costs.

    E/Emin = 1 + B/Bc and S/Smin = 1 + Bc/B, over the noise scale's range. McCandlish and others,
    arXiv:1812.06162, section 2.3.

    Args:
        noise: of the training.
        batch: B, samples per update of all ranks together.

    Raises:
        ValueError: a batch that is not above 0.
    """
    if not batch > 0:
        raise ValueError(f"a batch has samples, not {batch}")
    spent = [
        None if bound is None else samples_factor(batch, bound)
        for bound in (noise.value, noise.high, noise.low)
    ]
    updates = [
        None if bound is None else updates_factor(batch, bound)
        for bound in (noise.value, noise.low, noise.high)
    ]
    where = _place(batch, noise.low, noise.high)
    return BatchPrice(
        batch,
        where,
        spent[0],
        spent[1],
        spent[2],
        updates[0],
        updates[1],
        updates[2],
        _says(noise, batch, where, spent[0], updates[0]),
    )


def samples_factor(batch: float, critical: float) -> float | None:
    """Return E/Emin; None: a critical batch of 0 has no price."""
    return 1 + batch / critical if critical > 0 else None


def updates_factor(batch: float, critical: float) -> float:
    """Return S/Smin."""
    return 1 + critical / batch


def _place(batch: float, low: float | None, high: float | None) -> str:
    """Say where a batch is against the range of the noise scale, whichever end of it is known."""
    if high is not None and batch > high:
        return "far above" if batch > _FAR_ABOVE * high else "above"
    if low is not None and batch < low:
        return "far below" if batch < _FAR_BELOW * low else "below"
    return "unknown" if low is None or high is None else "near"
