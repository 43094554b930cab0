"""The three rules for the rate of a larger batch."""

import math
from dataclasses import dataclass

import torch

from feedline.convergence.fix import Fix, FixValue, TrainingHooks

__all__ = ["FIX", "rate_factor", "scale_rates", "scaled_rate"]


_RULES = ("linear", "sqrt", "noise")
_OF_NOISE = ("critical_batch", "base_batch")
_VALUE = (
    "linear, sqrt or noise:critical_batch=144:base_batch=32, each with batch_factor=8 for a batch "
    "8 times larger "
    "(default: the number of ranks)"
)


def rate_factor(
    rule: str, times: float, base_batch: float | None = None, critical_batch: float | None = None
) -> float:
    """Return what to multiply the rate by when the batch is ``times`` larger.

    - linear: ``times`` (Goyal et al. 2017, arXiv 1706.02677), for SGD while the batch is far below
      the critical one.
    - sqrt: ``sqrt(times)`` (Krizhevsky 2014, arXiv 1404.5997; for Adam and its like: Malladi et al.
      2022, arXiv 2205.10287).
    - noise: ``(1 + Bc/B0) / (1 + Bc/(times B0))`` (McCandlish et al. 2018, arXiv 1812.06162,
      section 2.2; the gain of AdaScale, Johnson et al. 2020, arXiv 2007.05105, is the same
      expression). It is linear far below the critical batch and flat far above, and for a larger
      batch it never exceeds the linear rule.

    Args:
        rule: linear, sqrt or noise.
        times: new batch over old, above 0.
        base_batch: B0, samples, the batch that the rate was tuned for; for the noise rule.
        critical_batch: Bc, samples, at which noise and gradient weigh the same; for the noise rule.

    Raises:
        ValueError: a rule that is none, or a number that cannot be one.
    """
    if not 0 < times < math.inf:
        raise ValueError(f"the batch cannot become {times} times larger: expected a number above 0")
    if rule == "linear":
        return float(times)
    if rule == "sqrt":
        return math.sqrt(times)
    if rule != "noise":
        raise ValueError(f"unknown learning-rate rule {rule!r}; the rules are {', '.join(_RULES)}")
    if (
        base_batch is None
        or critical_batch is None
        or not (0 < base_batch < math.inf and 0 <= critical_batch < math.inf)
    ):
        raise ValueError(
            "the noise rule needs critical_batch and base_batch (the batch that the rate was "
            "tuned for), in samples"
        )
    return (1 + critical_batch / base_batch) / (1 + critical_batch / (times * base_batch))


def scaled_rate(
    rate: float,
    rule: str,
    times: float,
    base_batch: float | None = None,
    critical_batch: float | None = None,
) -> float:
    """Return the rate for a batch that is ``times`` larger; as `rate_factor`."""
    return rate * rate_factor(rule, times, base_batch, critical_batch)


def scale_rates(optimizer: torch.optim.Optimizer, factor: float) -> None:
    """Multiply the rate of every group, and of groups added later without one.

    Call it before a scheduler sees the optimizer.

    Raises:
        ValueError: a factor that is not a finite number above 0.
    """
    if not 0 < factor < math.inf:
        raise ValueError(f"rates cannot be multiplied by {factor}: expected a number above 0")
    # the defaults are what groups that come later begin with
    for settings in (*optimizer.param_groups, getattr(optimizer, "defaults", {})):
        for key in ("lr", "initial_lr"):
            if settings.get(key) is not None:
                # a new tensor: groups may share the one they were made with
                settings[key] = settings[key] * factor


@dataclass(frozen=True)
class _RuleSetting:
    """A rule and its numbers.

    Attributes:
        times: None: the number of ranks.
        base_batch: samples, for the noise rule.
        critical_batch: likewise.
    """

    rule: str
    times: float | None
    base_batch: float | None = None
    critical_batch: float | None = None


def _parse(text: str) -> _RuleSetting:
    value = FixValue.of(text, _VALUE, ("batch_factor", *_OF_NOISE))
    factors = [FixValue.number(word, _VALUE) for word in value.words[1:]]  # as in linear:8
    factors += [value.options["batch_factor"]] if "batch_factor" in value.options else []
    if not value.words or value.words[0] not in _RULES or len(factors) > 1:
        raise ValueError(f"{text!r} is not a learning-rate rule: expected {_VALUE}")
    if any(key in value.options for key in _OF_NOISE) and value.words[0] != "noise":
        raise ValueError(
            f"{' and '.join(_OF_NOISE)} are for the noise rule only: expected {_VALUE}"
        )
    times = factors[0] if factors else None
    setting = _RuleSetting(
        value.words[0], times, value.options.get("base_batch"), value.options.get("critical_batch")
    )
    # says what is wrong with it
    rate_factor(
        setting.rule, 2.0 if times is None else times, setting.base_batch, setting.critical_batch
    )
    return setting


def _lines(setting: _RuleSetting) -> str:
    times = "torch.distributed.get_world_size()" if setting.times is None else f"{setting.times:g}"
    noise = (
        f", base_batch={setting.base_batch:g}, critical_batch={setting.critical_batch:g}"
        if setting.rule == "noise"
        else ""
    )
    return (
        ("import torch\n" if setting.times is None else "")
        + "from feedline.convergence.fixes.lr_rule import rate_factor, scale_rates\n\n"
        + "# after the optimizer is made, before a scheduler is\n"
        + f'scale_rates(optimizer, rate_factor("{setting.rule}", {times}{noise}))'
    )


def _check(setting: _RuleSetting, ranks: int) -> None:
    """Check that it is known how much larger the batch is.

    Raises:
        ValueError: a single rank does not say it.
    """
    if setting.times is None and ranks == 1:
        noise = (
            f":critical_batch={setting.critical_batch:g}:base_batch={setting.base_batch:g}"
            if setting.rule == "noise"
            else ""
        )
        raise ValueError(
            f"with one rank, give how much larger the batch became: "
            f"lr_rule={setting.rule}:batch_factor=8{noise} for 8 times"
        )


def _attach(setting: _RuleSetting, training: TrainingHooks) -> None:
    """Scale the rate of each update: many loops, and some schedulers, set it themselves."""
    _check(setting, training.ranks)
    times = training.ranks if setting.times is None else setting.times
    factor = rate_factor(setting.rule, times, setting.base_batch, setting.critical_batch)
    training.rate(lambda _: factor)


FIX = Fix(
    name="lr_rule",
    value=_VALUE,
    summary="a larger learning rate for a larger batch, by the linear, the square-root or the "
    "noise-scale rule",
    parse=_parse,
    lines=_lines,
    attach=_attach,
    check=_check,
)
