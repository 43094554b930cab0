"""Common parts of the fixes that change the optimizer: the setting ``NAME=LR[:key=number...]``, its lines, and its place in a training."""

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import torch

from feedline.convergence.fix import Fix, Training

_KEYS = {
    "wd": "weight_decay",
    "momentum": "momentum",
    "beta1": "betas",
    "beta2": "betas",
    "eps": "eps",
    "trust": "trust_coefficient",
    "excluded": "excluded_lr_scale",
    "rest": "rest_lr",
    "every": "precondition_frequency",
}
#: The same by the names of the optimizer's arguments, which may be written as well.
_SHORT = {name: key for key, name in _KEYS.items() if name != "betas"}


@dataclass(frozen=True)
class Setting:
    """A learning rate, and the other numbers given by the user, by argument name of the optimizer."""

    lr: float
    arguments: dict[str, Any] = field(default_factory=dict)

    def call(self, name: str, params: str) -> str:
        """The Python call that creates the optimizer."""
        return f"{name}({', '.join([params, f'lr={self.lr:g}', *(f'{key}={value}' for key, value in self.arguments.items())])})"


def _parse(value: str, keys: tuple[str, ...], betas: tuple[float, float]) -> Setting:
    """Parse ``LR[:key=number...]``, such as ``0.04:weight_decay=0.2:beta1=0.8``.

    Args:
        keys: which of KEYS the optimizer knows.
        betas: what stands for the one that is not given.

    Raises:
        ValueError: says what it may be.
    """
    rate, *options = value.split(":")
    arguments: dict[str, Any] = {}
    for option in options:
        written, _, text = option.partition("=")
        key = _SHORT.get(written, written)
        if key not in keys:
            known = (key if _KEYS[key] == "betas" else _KEYS[key] for key in keys)
            raise ValueError(f"{written!r} is not one of its settings ({', '.join(known)})")
        number = _number(text, written)
        if key in ("beta1", "beta2"):
            first, second = arguments.get("betas", betas)
            arguments["betas"] = (number, second) if key == "beta1" else (first, number)
        else:
            arguments[_KEYS[key]] = int(number) if key == "every" else number
    return Setting(_number(rate, "the learning rate"), arguments)


def _number(text: str, what: str) -> float:
    try:
        number = float(text)
    except ValueError:
        raise ValueError(f"{what} must be a number, not {text!r}") from None
    if not 0 <= number < math.inf:
        raise ValueError(f"{what} must be a finite number of at least 0, not {text}")
    return number


def groups_at(params: Any, arguments: dict[str, Any], lr: float) -> list[dict[str, Any]]:
    """A program's parameters for another optimizer: its groups with the same ratios of rates, and no decay where it had none.

    Args:
        params: as the program gave them to its optimizer: tensors, (name, tensor) pairs, or groups.
        arguments: of its optimizer, by name.
        lr: the new rate, which stands for the ``lr`` among ``arguments``.
    """
    given = list(params.values() if isinstance(params, dict) else params)
    if not given or not isinstance(given[0], dict):
        return [{"params": given}]
    groups = []
    for group in given:
        kept: dict[str, Any] = {"params": group["params"] if isinstance(group["params"], torch.Tensor) else list(group["params"])}
        if "lr" in group and arguments.get("lr"):
            kept["lr"] = lr * group["lr"] / arguments["lr"]
        if group.get("weight_decay", None) == 0:
            kept["weight_decay"] = 0.0
        groups.append(kept)
    return groups


def optimizer_fix(
    name: str,
    make: Callable[..., torch.optim.Optimizer],
    keys: tuple[str, ...],
    summary: str,
    control: str,
    betas: tuple[float, float] = (0.9, 0.999),
    params: str = "model.parameters()",
) -> Fix:
    """The ``Fix`` of an optimizer.

    Args:
        make: class or function, called with the parameters, ``lr`` and the setting's arguments.
        keys: which of KEYS it knows.
        summary: one line.
        control: the ``--fix`` text of its equal-budget control; ``{lr}`` in it stands for the setting's rate.
        betas: its defaults.
        params: what ``make`` is given in the user's own code.
    """

    def lines(setting: Setting) -> str:
        return f"from feedline.convergence.fixes.{name} import {make.__name__}\n\noptimizer = {setting.call(make.__name__, params)}\n"

    def attach(setting: Setting, training: Training) -> None:
        training.optimizer(lambda _, params, arguments: make(groups_at(params, arguments, setting.lr), lr=setting.lr, **setting.arguments))

    value = "LR" + "".join(f"[:{key}=NUMBER]" for key in keys)
    return Fix(name, value, summary, lambda text: _parse(text, keys, betas), lines, attach, control, replaces_optimizer=True)
