"""The three rules for the rate of a larger batch."""

import math

import torch

RULES = ("linear", "sqrt", "noise")


def rate_factor(rule: str, times: float, base_batch: float | None = None, critical_batch: float | None = None) -> float:
    """What to multiply the rate by when the batch is ``times`` larger.

    - linear: ``times`` (Goyal et al. 2017, arXiv 1706.02677), for SGD while the batch is far below the critical one.
    - sqrt: ``sqrt(times)`` (Krizhevsky 2014, arXiv 1404.5997; for Adam and its like: Malladi et al. 2022, arXiv 2205.10287).
    - noise: ``(1 + Bc/B0) / (1 + Bc/(times B0))`` (McCandlish et al. 2018, arXiv 1812.06162, section 2.2; the gain of AdaScale, Johnson
      et al. 2020, arXiv 2007.05105, is the same expression). It is linear far below the critical batch and flat far above, and for a larger
      batch it never exceeds the linear rule.

    Args:
        rule: one of RULES.
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
        raise ValueError(f"unknown learning-rate rule {rule!r}; the rules are {', '.join(RULES)}")
    if base_batch is None or critical_batch is None or not (0 < base_batch < math.inf and 0 <= critical_batch < math.inf):
        raise ValueError("the noise rule needs critical_batch and base_batch (the batch that the rate was tuned for), in samples")
    return (1 + critical_batch / base_batch) / (1 + critical_batch / (times * base_batch))


def scaled_rate(rate: float, rule: str, times: float, base_batch: float | None = None, critical_batch: float | None = None) -> float:
    """The rate for a batch that is ``times`` larger; arguments and errors as in `rate_factor`."""
    return rate * rate_factor(rule, times, base_batch, critical_batch)


def scale_rates(optimizer: torch.optim.Optimizer, factor: float) -> None:
    """Multiply the rate of every group, and of groups added later without one; call it before a scheduler sees the optimizer.

    Raises:
        ValueError: a factor that is not a finite number above 0.
    """
    if not 0 < factor < math.inf:
        raise ValueError(f"rates cannot be multiplied by {factor}: expected a number above 0")
    for settings in (*optimizer.param_groups, getattr(optimizer, "defaults", {})):
        for key in ("lr", "initial_lr"):
            if settings.get(key) is not None:
                settings[key] = settings[key] * factor  # a new tensor: groups may share the one they were made with
