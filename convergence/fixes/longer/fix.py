"""Longer training as the lines that do it: how many epochs there are belongs to the program."""

from dataclasses import dataclass

from feedline.convergence.fix import Fix
from feedline.convergence.fixes.longer.inflation import longer
from feedline.convergence.value import Value, number

VALUE = (
    "256:base_batch=32:critical_batch=144 (new batch, the batch that the training was tuned for, critical batch in samples), and "
    "low=92:high=200 for the interval of the critical batch"
)


@dataclass(frozen=True)
class Setting:
    """All in samples; low and high: interval of the critical batch, or None."""

    batch: float
    base_batch: float
    critical_batch: float
    low: float | None
    high: float | None


def parse(text: str) -> Setting:
    value = Value.of(text, VALUE, ("base_batch", "critical_batch", "low", "high"))
    given = value.options
    if len(value.words) != 1 or "base_batch" not in given or "critical_batch" not in given:
        raise ValueError(f"{text!r} does not say how much longer: expected {VALUE}")
    batch = number(value.words[0], VALUE)
    setting = Setting(batch, given["base_batch"], given["critical_batch"], given.get("low"), given.get("high"))
    longer(1.0, setting.batch, setting.base_batch, setting.critical_batch, setting.low, setting.high)  # says what is wrong with it
    return setting


def lines(setting: Setting) -> str:
    interval = "" if setting.low is None else f", low={setting.low:g}, high={setting.high:g}"
    return (
        "from feedline.convergence.fixes.longer import longer\n\n"
        f"epochs = longer(epochs, batch={setting.batch:g}, base_batch={setting.base_batch:g}, "
        f"critical_batch={setting.critical_batch:g}{interval}).rounded"
    )


FIX = Fix(
    name="longer",
    value=VALUE,
    says="as many more epochs as the larger batch is predicted to need for the same loss, still in fewer updates",
    control="",
    parse=parse,
    lines=lines,
    attach=None,
)
