"""The noise scale of a recorded training.

It is given window by window, and as one value with the range that it went through.
"""

import math
from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from feedline.analysis.convergence import checks
from feedline.analysis.convergence.training_record import GradientNorms, TrainingRecord
from feedline.analysis.convergence.training_series import NoiseOverTraining, NoiseWindow
from feedline.analysis.intervals import FloatArray
from feedline.analysis.ledger.finding import Finding
from feedline.profiler.message import ONE_GRADIENT, Message, id_of
from feedline.profiler.noise_scale import WINDOWS, Window, windows

_NEEDS_PARTS = Message(
    "needs two or more ranks, or gradient accumulation over two or more micro-batches", ONE_GRADIENT
)
_AVERAGED_ALREADY = "the ranks' own gradients were not seen before they were averaged"
#: A finite dataset matters once the noise scale is a tenth of it.
_NEAR_BOUND = 0.1
_PIECES = (WINDOWS, 7, 3, 1)
#: Of the windows: where fewer can be measured, they are those whose noise scale came out low by
#: chance.
_MEASURABLE_SHARE = 0.8
#: From this many windows on their lowest and highest value are far enough apart to hold that of the
#: training; of fewer, a standard error is added to each, half of its interval on a scale of ratios.
_MANY_WINDOWS = 8


def _noise_over_training(recorded: TrainingRecord) -> NoiseOverTraining:
    """Cut into about 20 windows, fewer where so short ones cannot be measured.

    The gradient of an early part is many times that of a late one, so one ratio of means over all
    of it would be that of the beginning.

    The value weighs each window by the progress in it. An update at batch B makes 1 / (1 + Bc / B)
    of the progress of one without noise (arXiv:1812.06162, section 2.3), so updates to a loss at
    another batch follow from sum(w Bc) / sum(w) with w = 1 / (1 + Bc / B), whatever Bc does
    meanwhile. The range is that of the windows: the moment that is looked at changes the advice
    several-fold.
    """
    norms = recorded.norms
    if norms is None:
        why = recorded.why or (_NEEDS_PARTS if recorded.ranks < 2 else _AVERAGED_ALREADY)
        return NoiseOverTraining(None, None, None, why, "", [], 0, id_of(why))
    cut = _windows(norms, None)
    known = [window.scale.value for window in cut if window.scale.value is not None]
    size = recorded.samples_per_epoch
    if size and known and max(known) > _NEAR_BOUND * size:
        cut = _windows(norms, size)
    listed = [_window(window, norms.samples) for window in cut]
    dropped = sum(window.scale.dropped for window in cut)
    sizes = norms.B[np.isfinite(norms.B)]
    batch = recorded.batch or (float(np.median(sizes)) if len(sizes) else math.nan)
    value, low, high, why = _whole(listed, batch)
    return NoiseOverTraining(value, low, high, why, norms.how, listed, dropped)


def usable_noise(recorded: TrainingRecord, findings: Sequence[Finding]) -> NoiseOverTraining:
    """Return the noise scale, without a value where it would only show a mistake.

    That is a mistake in the set-up, or a loss that exploded.
    """
    scale = _noise_over_training(recorded)
    if recorded.norms is None:
        return scale
    why = next(
        (
            checks.WITHOUT_NOISE_SCALE[finding.rule_id]
            for finding in findings
            if finding.rule_id in checks.WITHOUT_NOISE_SCALE
        ),
        "",
    )
    return (
        replace(scale, value=None, low=None, high=None, windows=[], why=why, reason="")
        if why
        else scale
    )


def _windows(norms: GradientNorms, data_set: float | None) -> list[Window]:
    """Cut the training into as many windows as leave most of them measurable.

    Fewer windows are longer, and one has the best bound where nothing can be measured.
    """
    for pieces in _PIECES:
        cut = windows(
            norms.small_sq, norms.big_sq, norms.b, norms.B, pieces=pieces, data_set=data_set
        )
        if sum(window.scale.value is not None for window in cut) >= _MEASURABLE_SHARE * len(cut):
            break
    return cut


def _window(window: Window, samples: np.ndarray) -> NoiseWindow:
    scale = window.scale
    middle = (
        float(np.median(samples[window.first : window.last])) if window.last > window.first else 0.0
    )
    return NoiseWindow(middle, scale.updates, scale.value, scale.low, scale.high, scale.why)


def _whole(
    listed: list[NoiseWindow], batch: float
) -> tuple[float | None, float | None, float | None, str]:
    """Return value and range over all windows, and why there is none."""
    if not listed:
        return None, None, None, "no update was recorded"
    measured = [window for window in listed if window.value is not None]
    if not measured:
        lows = [window.low for window in listed if window.low]
        highs = [window.high for window in listed if window.high is not None and not window.low]
        why = max((window.why for window in listed), key=[window.why for window in listed].count)
        return (
            None,
            min(lows) if lows and not highs else None,
            max(highs) if highs and not lows else None,
            why,
        )
    values = np.array([window.value for window in measured], float)
    weights = 1 / (1 + _steady(values) / batch) if math.isfinite(batch) else np.ones(len(values))
    reach = 1.0 if len(measured) == 1 else 0.5 if len(measured) < _MANY_WINDOWS else 0.0
    low = min(
        (window.value or 0.0) ** (1 - reach) * (window.low or 0.0) ** reach for window in measured
    )
    high = max(
        (window.value or 0.0) ** (1 - reach) * (window.high or 0.0) ** reach for window in measured
    )
    unseen = [window.low for window in listed if window.value is None and window.low]
    return float(np.average(values, weights=weights)), low, max([high, *unseen]), ""


def _steady(values: FloatArray) -> FloatArray:
    """Return the median of each window and its two neighbours.

    A window that came out low by chance should not count more for it.
    """
    if len(values) < 3:
        return np.full(len(values), values.mean())
    padded = np.concatenate([values[1:2], values, values[-2:-1]])
    return np.median(np.stack([padded[:-2], padded[1:-1], padded[2:]]), axis=0)
