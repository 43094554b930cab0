"""The rate rules as ``--fix lr_rule=VALUE``."""

from dataclasses import dataclass

import torch

from feedline.convergence.fix import Fix, Training
from feedline.convergence.fixes.lr_rule.rule import RULES, rate_factor, scale_rates
from feedline.convergence.value import Value, number

VALUE = "linear, sqrt, linear:8 or noise:8:bc=144:b0=32; without a factor the number of ranks"


@dataclass(frozen=True)
class Setting:
    """times: None: the number of ranks. base_batch, critical_batch: samples, for the noise rule."""

    rule: str
    times: float | None
    base_batch: float | None = None
    critical_batch: float | None = None


def parse(text: str) -> Setting:
    value = Value.of(text, VALUE, ("bc", "b0"))
    if len(value.words) > 2 or value.words[0] not in RULES:
        raise ValueError(f"{text!r} is no rule for the rate: it may be {VALUE}")
    if value.options and value.words[0] != "noise":
        raise ValueError(f"bc= and b0= belong to the noise rule: it may be {VALUE}")
    times = number(value.words[1], VALUE) if len(value.words) == 2 else None
    setting = Setting(value.words[0], times, value.options.get("b0"), value.options.get("bc"))
    rate_factor(setting.rule, 2.0 if times is None else times, setting.base_batch, setting.critical_batch)  # says what is wrong with it
    return setting


def lines(setting: Setting) -> str:
    times = "torch.distributed.get_world_size()" if setting.times is None else f"{setting.times:g}"
    noise = f", base_batch={setting.base_batch:g}, critical_batch={setting.critical_batch:g}" if setting.rule == "noise" else ""
    return (
        ("import torch\n" if setting.times is None else "")
        + "from feedline.convergence.fixes.lr_rule import rate_factor, scale_rates\n\n"
        + "# after the optimizer is made, before a scheduler is\n"
        + f'scale_rates(optimizer, rate_factor("{setting.rule}", {times}{noise}))'
    )


def attach(setting: Setting, training: Training) -> None:
    times = training.ranks if setting.times is None else setting.times
    if setting.times is None and training.ranks == 1:
        write = f"{setting.rule}:8" + (f":bc={setting.critical_batch:g}:b0={setting.base_batch:g}" if setting.rule == "noise" else "")
        raise ValueError(f"one rank says nothing of how much larger the batch became: write lr_rule={write} for 8 times")
    factor = rate_factor(setting.rule, times, setting.base_batch, setting.critical_batch)

    def scale(optimizer: torch.optim.Optimizer) -> None:
        scale_rates(optimizer, factor)

    training.made_optimizer(scale)


FIX = Fix(
    name="lr_rule",
    value=VALUE,
    says="a larger learning rate for a larger batch, by the linear, the square-root or the noise-scale rule",
    control="",
    parse=parse,
    lines=lines,
    attach=attach,
)
