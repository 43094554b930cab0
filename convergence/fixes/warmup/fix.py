"""Warm-up as ``--fix warmup=VALUE``."""

from dataclasses import dataclass, replace

from feedline.convergence.fix import Fix, Progress, Training
from feedline.convergence.fixes.warmup.warmup import warmup_factor
from feedline.convergence.value import Value, number

VALUE = "5ep (epochs), 20000 (samples of all ranks), 5ep:from=0.125 (from an eighth of the rate; without it from 0)"


@dataclass(frozen=True)
class Setting:
    """One of epochs and samples is None."""

    epochs: float | None
    samples: int | None
    start: float


def parse(text: str) -> Setting:
    value = Value.of(text, VALUE, ("from",))
    length, start = value.words[0] if len(value.words) == 1 else "", value.options.get("from", 0.0)
    in_epochs = length.endswith("ep")
    amount = number(length.removesuffix("ep"), VALUE)
    if amount <= 0 or not 0 <= start <= 1 or not (in_epochs or amount.is_integer()):
        raise ValueError(f"{text!r} is not a warm-up: expected {VALUE}")
    return Setting(amount if in_epochs else None, None if in_epochs else int(amount), start)


def lines(setting: Setting) -> str:
    length = f"{setting.samples}" if setting.epochs is None else f"int({setting.epochs:g} * len(loader.dataset))"
    start = f", start={setting.start:g}" if setting.start else ""
    return (
        "from feedline.convergence.fixes.warmup import Warmup\n\n"
        f"warmup = Warmup(optimizer, samples={length}{start})\n"
        "# in the loop, before each optimizer.step():\n"
        "warmup.count(len(batch))  # times the number of ranks"
    )


def attach(setting: Setting, training: Training) -> None:
    def factor(progress: Progress) -> float:
        with_this_update = replace(progress, samples=progress.samples + progress.batch)
        return warmup_factor(with_this_update.after(setting.epochs, setting.samples), setting.start)

    training.rate(factor)


FIX = Fix(
    name="warmup",
    value=VALUE,
    says="a learning rate that grows linearly over the first epochs or samples",
    control="",
    parse=parse,
    lines=lines,
    attach=attach,
)
