"""The rate rules as ``--fix lr_rule=VALUE``."""

from dataclasses import dataclass

import torch

from feedline.convergence.fix import Fix, Training
from feedline.convergence.fixes.lr_rule.rule import RULES, rate_factor, scale_rates
from feedline.convergence.value import Value, number

OF_NOISE = ("critical_batch", "base_batch")
VALUE = (
    "linear, sqrt or noise:critical_batch=144:base_batch=32, each with batch_factor=8 for a batch 8 times larger "
    "(default: the number of ranks)"
)


@dataclass(frozen=True)
class Setting:
    """times: None: the number of ranks. base_batch, critical_batch: samples, for the noise rule."""

    rule: str
    times: float | None
    base_batch: float | None = None
    critical_batch: float | None = None


def parse(text: str) -> Setting:
    value = Value.of(text, VALUE, ("batch_factor", *OF_NOISE))
    factors = [number(word, VALUE) for word in value.words[1:]]  # as in linear:8
    factors += [value.options["batch_factor"]] if "batch_factor" in value.options else []
    if not value.words or value.words[0] not in RULES or len(factors) > 1:
        raise ValueError(f"{text!r} is not a learning-rate rule: expected {VALUE}")
    if any(key in value.options for key in OF_NOISE) and value.words[0] != "noise":
        raise ValueError(f"{' and '.join(OF_NOISE)} are for the noise rule only: expected {VALUE}")
    times = factors[0] if factors else None
    setting = Setting(value.words[0], times, value.options.get("base_batch"), value.options.get("critical_batch"))
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
        noise = f":critical_batch={setting.critical_batch:g}:base_batch={setting.base_batch:g}" if setting.rule == "noise" else ""
        raise ValueError(f"with one rank, say how much larger the batch became: lr_rule={setting.rule}:batch_factor=8{noise} for 8 times")
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
