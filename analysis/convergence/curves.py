"""Curves of a training: their level at a point, their last value, and what their names tell."""

import math
import re
from dataclasses import dataclass

import numpy as np

from feedline.analysis.convergence.training_record import Curve
from feedline.analysis.intervals import FloatArray

#: Part of the samples before a point that its mean is taken over.
TAIL = 0.1
#: Blocks of neighbours behind a standard error: neighbours are alike, blocks hardly.
_TAIL_BLOCKS = 10

_RISING = (
    "acc",
    "accuracy",
    "top1",
    "top5",
    "f1",
    "auc",
    "map",
    "bleu",
    "miou",
    "precision",
    "recall",
)
_HIGHER_WORDS = ("accuracy", "precision", "recall")  # anywhere in a name
_LOWER_WORDS = ("loss", "error", "perplexity")
# or words of names
_HIGHER_NAMES = frozenset(
    (*_RISING, *"auprc auroc dice iou kappa mcc meteor mrr ndcg psnr r2 rouge ssim".split())
)
_LOWER_NAMES = frozenset(
    "bpb bpc bpd brier cer ece eer fid kld mae mape mse nll nmse ppl rmse rmsle ter wer".split()
)
TRAIN = "train loss"


@dataclass(frozen=True)
class CurveLevel:
    """What a curve says at a point: mean and standard error of ``points`` values before it."""

    mean: float
    error: float
    points: int


def level_at(curve: Curve, samples: float, tail: float = TAIL) -> CurveLevel | None:
    """Return the mean over the last ``tail`` of the samples before a point; None: it has none.

    Where only few values were recorded, it is the last one.
    """
    seen = (curve.samples <= samples * (1 + 1e-9)) & np.isfinite(curve.values)
    values = curve.values[seen & (curve.samples >= samples * (1 - tail))]
    if len(values) >= 4:
        means = np.array(
            [block.mean() for block in np.array_split(values, min(_TAIL_BLOCKS, len(values)))]
        )
        return CurveLevel(
            float(values.mean()), float(means.std(ddof=1)) / math.sqrt(len(means)), len(values)
        )
    before = curve.values[seen]
    if not len(before):
        return None
    last = before[-5:]
    return CurveLevel(float(before[-1]), _scatter(last), 1)


def final_value_of(name: str, curve: Curve) -> float | None:
    """Return what a curve ended at.

    Of the training's loss that is the mean over the last tenth of its samples, of any other the
    last value.
    """
    if name == TRAIN and len(curve.samples):
        end = level_at(curve, float(curve.samples[-1]))
        return end.mean if end is not None else None
    finite = curve.values[np.isfinite(curve.values)]
    return float(finite[-1]) if len(finite) else None


def _scatter(values: FloatArray) -> float:
    """Return the standard deviation about a straight line; 0 of fewer than three."""
    if len(values) < 3:
        return 0.0
    at = np.arange(len(values))
    rest = values - np.polyval(np.polyfit(at, values, 1), at)
    return float(np.sqrt((rest**2).sum() / (len(values) - 2)))


def is_higher_better(name: str) -> bool:
    """Tell whether more is better, as its name says: an accuracy, but not a loss or an error."""
    return any(word in _RISING for word in words_of_name(name)) and not {
        "loss",
        "error",
        "err",
    } & set(words_of_name(name))


def is_lower_better(name: str) -> bool | None:
    """Tell whether less is better, as a name says; None: it does not say."""
    words = {*words_of_name(name), *re.split(r"[^a-z]+", name.lower())}
    if any(word in name.lower() for word in _LOWER_WORDS) or words & _LOWER_NAMES:
        return True
    if any(word in name.lower() for word in _HIGHER_WORDS) or words & _HIGHER_NAMES:
        return False
    return None


def words_of_name(name: str) -> list[str]:
    """Split the name of a curve: ``val/top1_acc`` -> val, top1, acc."""
    return "".join(c if c.isalnum() else " " for c in name.lower()).split()


def running_mean(values: FloatArray, width: int) -> FloatArray:
    """Return the mean of each value and up to ``width - 1`` before it: float64 [n]."""
    sums = np.concatenate([[0.0], np.cumsum(values)])
    ends = np.arange(1, len(values) + 1)
    starts = np.maximum(0, ends - width)
    return (sums[ends] - sums[starts]) / (ends - starts)
