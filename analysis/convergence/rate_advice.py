"""Advice on the learning rate and its warm-up."""

import math
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from feedline.analysis.convergence.advice import (
    Advice,
    AdviceCase,
    advice_for,
    epochs_of,
    fixes_of,
    is_adaptive,
    optimizer_kinds,
    verdict_of,
)
from feedline.analysis.convergence.loss_kinds import grows_with_batch
from feedline.analysis.convergence.training_record import TrainingRecord
from feedline.analysis.intervals import FloatArray
from feedline.analysis.text.formatting import count, number

_WARMUP_EPOCHS = 5.0  # Goyal and others, arXiv:1706.02677
#: Of the training at most: the longest of You and others (arXiv:1904.00962, table 4), 1/5 at a
#: batch of 32,768.
_WARMUP_SHARE = 1 / 5
_FEWEST_WARMUP = 2  # updates: a shorter one changes nothing
_STARTS_LOW = 0.5  # of its highest rate: a training whose rate begins below it warms up already
_ALREADY = 1.1  # times a rate that is not worth changing, or that two runs have in common


def lower_rate(case: AdviceCase) -> Iterator[Advice]:
    """Yield the square root rule's rate, where that is lower than the rate that was unstable.

    It is also yielded where that rate is unknown.
    """
    root, scaled = math.sqrt(case.ratio), _scaled(case)
    if case.ratio <= 1 or scaled is not None and scaled < _ALREADY * root:
        return
    warmup = warmup_for(case.run)
    too, then = (
        (f",{warmup.setting}", f", with a warm-up over {warmup.words}")
        if warmup is not None
        else ("", "")
    )
    if scaled is None:
        what = (
            f"set the small batch's learning rate and scale it by the square root rule "
            f"({number(root)} times){then}; undo any other "
        )
        fix, what = f"lr_rule=sqrt:{case.ratio:.3g}{too}", f"{what}scaling first"
    else:
        fix = f"lr_rule=linear:{root / scaled:.3g}{too}"
        what = (
            f"lower the learning rate from {number(scaled)} to {number(root)} times that of "
            f"the small batch (square root rule){then}"
        )
    yield advice_for(case, "sqrt_rule", what, fix, verdict_of(case))


@dataclass(frozen=True)
class _Warmup:
    """How long to warm up, as a part of a ``--fix`` text and in words."""

    setting: str
    words: str


def warmup_for(run: TrainingRecord) -> _Warmup | None:
    """Choose a warm-up of five epochs, or a fifth of the training where that is less.

    None: it warms up already, or its length is unknown or too short.
    """
    if "warmup" in fixes_of(run) or _warms_up(run) or run.updates * _WARMUP_SHARE < _FEWEST_WARMUP:
        return None
    epochs = epochs_of(run)
    if epochs is not None:
        length = float(f"{min(_WARMUP_EPOCHS, _WARMUP_SHARE * epochs):.2g}")
        return _Warmup(f"warmup={length:g}ep", f"{length:g} epoch{'s' * (length != 1)}")
    if not run.samples_known:
        return None
    samples = int(float(f"{_WARMUP_SHARE * run.samples:.2g}"))
    return _Warmup(f"warmup={samples}", f"{count(samples)} samples")


def _warms_up(run: TrainingRecord) -> bool:
    """Tell whether the learning rate begins low and is highest later."""
    rates = rates_of(run)
    return len(rates) > 1 and float(rates[0]) < _STARTS_LOW * float(rates.max())


def scaled_rate(case: AdviceCase) -> Iterator[Advice]:
    """Yield the rule for the learning rate and a warm-up.

    What the training has already is left out.
    """
    fix, words = rate_fix(case)
    if fix:
        yield advice_for(case, "rate_rule", words, fix, verdict_of(case))


def rate_fix(case: AdviceCase) -> tuple[str, str]:
    """Return rule and warm-up as fix and in words.

    Both are empty where the training has both.
    """
    rule, words = _rule(case)
    warmup = warmup_for(case.run)
    if warmup is None:
        return rule, words
    return ",".join(
        filter(None, (rule, warmup.setting))
    ), f"{words or 'keep the learning rate'}, with a warm-up over {warmup.words}"


def _rule(case: AdviceCase) -> tuple[str, str]:
    """Return the rate rule of the noise scale, as fix and in words.

    It is for SGD where it is known, of the square root for Adam and its like. Both are empty where
    the rate already is as high, or no smaller batch is known.
    """
    times, base, scaled = case.ratio, case.base, _scaled(case)
    if times <= 1 or base is None:
        return "", ""
    if is_adaptive(case.run):
        factor, fix, name = math.sqrt(times), f"lr_rule=sqrt:{times:.3g}", "sqrt rule"
    elif case.reference is not None and grows_with_batch([case.reference], [case.run]):
        return "", ""  # so does its gradient, and with it each step
    elif case.noise.value:
        factor = min(times, (1 + case.noise.value / base) / (1 + case.noise.value / (times * base)))
        name = "noise-scale rule"
        fix = f"lr_rule=noise:batch_factor={times:.3g}:critical_batch={case.noise.value:.3g}:base_batch={base:.5g}"
    else:
        factor, fix, name = times, f"lr_rule=linear:{times:.3g}", "linear rule"
    words = (
        f"for a batch {_rounded(times)} times as large, use {_rounded(factor)} times the learning "
        f"rate"
    )
    if scaled is None:
        return fix, f"{words}, unless it is scaled already ({name})"
    if factor < _ALREADY * scaled:
        return "", ""
    if scaled > _ALREADY:
        return (
            f"lr_rule=linear:{factor / scaled:.3g}",
            f"{words} instead of {number(scaled)} times ({name})",
        )
    return fix, f"{words} ({name})"


def _rounded(factor: float) -> str:
    """Return a factor rounded to two digits: 1.4, 5, 16."""
    return number(factor, 2).removesuffix(".0")


def _scaled(case: AdviceCase) -> float | None:
    """Return the highest learning rate over that of the small batch.

    None: unknown, or of optimizers that cannot be compared.
    """
    if case.reference is None or optimizer_kinds(case.run) != optimizer_kinds(case.reference):
        return None
    own, other = (rates_of(run) for run in (case.run, case.reference))
    return float(own.max() / other.max()) if len(own) and len(other) and other.max() > 0 else None


def rates_of(run: TrainingRecord) -> FloatArray:
    """Return the learning rates in their order."""
    rate = run.curves.get("lr")
    return rate.values[np.isfinite(rate.values)] if rate is not None else np.zeros(0)
