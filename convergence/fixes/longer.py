"""Samples for an equal loss: E / Emin = 1 + B / Bc.

McCandlish et al. 2018, arXiv 1812.06162, section 2.3.
"""

import math
from dataclasses import dataclass

from feedline.convergence.fix import Fix, FixValue

__all__ = ["FIX", "Longer", "inflation", "longer"]


_VALUE = (
    "256:base_batch=32:critical_batch=144 (new batch, the batch that the training was tuned for, "
    "critical batch in samples), and "
    "low=92:high=200 for the interval of the critical batch"
)


@dataclass(frozen=True)
class Longer:
    """How long to train.

    Attributes:
        epochs: predicted for an equal loss.
        low, high: from the interval of the critical batch; NaN: none was given.
    """

    epochs: float
    low: float = math.nan
    high: float = math.nan

    @property
    def rounded(self) -> int:
        """Whole epochs, not fewer than predicted."""
        return math.ceil(self.epochs - 1e-9)


def inflation(batch: float, base_batch: float, critical_batch: float) -> float:
    """Return how many times more samples reach the same loss, ``(1 + B / Bc) / (1 + B0 / Bc)``.

    All in samples; an infinite Bc costs none.
    """
    if not (0 < batch < math.inf and 0 < base_batch < math.inf and critical_batch >= 0):
        raise ValueError(
            f"batch sizes must be above 0, not {batch}, {base_batch} and a critical batch of "
            f"{critical_batch}"
        )
    if critical_batch == math.inf:
        return 1.0
    # divided through by Bc, a tiny one would overflow
    return (critical_batch + batch) / (critical_batch + base_batch)


def longer(
    epochs: float,
    batch: float,
    base_batch: float,
    critical_batch: float,
    low: float | None = None,
    high: float | None = None,
) -> Longer:
    """Predict the epochs at a batch for the loss that a base batch reached.

    Args:
        epochs: at the base batch.
        batch: samples.
        base_batch: samples.
        critical_batch: Bc in samples, the noise scale of the training (``feedline converge
            advise``); 0: even one sample is enough.
        low: lower end of the interval of the critical batch; with high, or neither.
        high: its upper end; may be infinite.

    Raises:
        ValueError: a number that cannot be one, or an interval that does not contain the critical
            batch.
    """
    if not 0 < epochs < math.inf:
        raise ValueError(f"epochs must be finite and above 0, not {epochs}")
    predicted = epochs * inflation(batch, base_batch, critical_batch)
    if low is None and high is None:
        return Longer(predicted)
    if low is None or high is None or not 0 <= low <= critical_batch <= high:
        raise ValueError(
            f"the interval [{low}, {high}] of the critical batch does not contain {critical_batch}"
        )
    ends = sorted(epochs * inflation(batch, base_batch, end) for end in (low, high))
    return Longer(predicted, *ends)


@dataclass(frozen=True)
class _LongerSetting:
    """Batches in samples; low and high: interval of the critical batch, or None."""

    batch: float
    base_batch: float
    critical_batch: float
    low: float | None
    high: float | None


def _parse(text: str) -> _LongerSetting:
    value = FixValue.of(text, _VALUE, ("base_batch", "critical_batch", "low", "high"))
    options = value.options
    if len(value.words) != 1 or "base_batch" not in options or "critical_batch" not in options:
        raise ValueError(f"{text!r} does not say how much longer: expected {_VALUE}")
    batch = FixValue.number(value.words[0], _VALUE)
    setting = _LongerSetting(
        batch,
        options["base_batch"],
        options["critical_batch"],
        options.get("low"),
        options.get("high"),
    )
    # says what is wrong with it
    longer(
        1.0, setting.batch, setting.base_batch, setting.critical_batch, setting.low, setting.high
    )
    return setting


def _lines(setting: _LongerSetting) -> str:
    interval = "" if setting.low is None else f", low={setting.low:g}, high={setting.high:g}"
    return (
        "from feedline.convergence.fixes.longer import longer\n\n"
        f"epochs = longer(epochs, batch={setting.batch:g}, base_batch={setting.base_batch:g}, "
        f"critical_batch={setting.critical_batch:g}{interval}).rounded"
    )


FIX = Fix(
    name="longer",
    value=_VALUE,
    summary="as many more epochs as the larger batch is predicted to need for the same loss, "
    "still in fewer updates",
    parse=_parse,
    lines=_lines,
)
