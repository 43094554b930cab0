"""What a fix is: its setting, its control, and where it acts on an unchanged training.

Fixes that change the optimizer share ``optimizer_fix``: the setting ``NAME=LR[:key=number...]``,
its lines, and its place in a training.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Protocol

import torch
from torch import Tensor

#: Older names of options, which still work.
_RENAMED = {"bc": "critical_batch", "b0": "base_batch"}
_OPTION_ARGUMENTS = {
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
_OPTION_BY_ARGUMENT = {name: key for key, name in _OPTION_ARGUMENTS.items() if name != "betas"}


@dataclass(frozen=True)
class TrainingProgress:
    """Progress of the training before an update.

    Attributes:
        updates: optimizer steps made.
        samples: samples seen by all ranks.
        samples_per_epoch: of the training's dataset, all ranks together; None: its loader has no
            length.
        batch: samples of this update, all ranks together.
        ranks: processes of the training.
    """

    updates: int
    samples: int
    samples_per_epoch: int | None
    batch: int
    ranks: int

    def after(self, epochs: float | None, samples: int | None) -> float:
        """Return the share (0 to 1) that has passed of a phase of these epochs or samples.

        Raises:
            ValueError: it is in epochs, and the length of an epoch is unknown.
        """
        if epochs is not None and self.samples_per_epoch is None:
            raise ValueError(
                "the loader does not say how many samples an epoch has: give the length in samples"
            )
        length = samples if epochs is None else epochs * (self.samples_per_epoch or 0)
        return min(1.0, self.samples / length) if length else 1.0


class NothingToChange(ValueError):
    """A model or an output has nothing that a fix could change; another one may have."""


class TrainingHooks(Protocol):
    """The hooks of a training that a fix can use.

    Changes are undone with the recording (convergence/apply.py).
    """

    ranks: int

    def optimizer(
        self,
        make: Callable[[type[torch.optim.Optimizer], Any, dict[str, Any]], torch.optim.Optimizer],
    ) -> None:
        """Make another optimizer where the program makes torch's SGD, Adam or AdamW.

        ``make`` is called with its class, its parameters and its arguments.
        """

    def rate(self, factor: Callable[[TrainingProgress], float]) -> None:
        """Multiply the learning rates of an update by a factor, and restore them afterwards.

        No scheduler sees the change, and no program that sets the rate undoes it.
        """

    def model(self, act: Callable[[torch.nn.Module], None]) -> None:
        """Call ``act`` with each outermost model before its first training forward.

        Parameters and buffers must stay the same objects. NothingToChange: not in this model.
        """

    def output(self, act: Callable[[torch.Tensor], torch.Tensor]) -> None:
        """Replace the output of each outermost training forward by ``act(output)``.

        Its first dimension is that of samples. NothingToChange: not in this output.
        """


@dataclass(frozen=True)
class Fix:
    """One fix, as ``feedline run --fix NAME=VALUE`` and ``feedline converge`` know it.

    Attributes:
        name: as the user writes it.
        value: what VALUE may be, for the help.
        summary: what it does, in one line.
        parse: VALUE as a setting. ValueError says what it may be.
        lines: Python that the user would write for this setting, imports included, ready to paste.
        attach: applies it to an unchanged training; None: it cannot be applied from outside,
            ``lines`` shows how.
        control: the ``--fix`` text of the control that it must beat at equal budget; "": the
            unchanged training.
        replaces_optimizer: it is an optimizer with a rate of its own.
        check: called with the setting and the number of ranks. ValueError says why it cannot act.
    """

    name: str
    value: str
    summary: str
    parse: Callable[[str], Any]
    lines: Callable[[Any], str]
    attach: Callable[[Any, TrainingHooks], None] | None = None
    control: str = ""
    replaces_optimizer: bool = False
    check: Callable[[Any, int], None] = lambda setting, ranks: None


@dataclass(frozen=True)
class FixValue:
    """VALUE of ``--fix NAME=VALUE``: words and ``key=number`` options separated by colons.

    ``noise:8:critical_batch=144`` is the words ``["noise", "8"]`` and the options
    ``{"critical_batch": 144.0}``.
    """

    words: list[str]
    options: dict[str, float]

    @classmethod
    def of(cls, text: str, may_be: str, options: tuple[str, ...] = ()) -> "FixValue":
        """Split a text.

        Args:
            text: as the user wrote it.
            may_be: what VALUE may be, for the message.
            options: the keys that it may have.

        Raises:
            ValueError: an unknown option, or a value that is not a number.
        """
        words, numbers = [], {}
        for part in text.strip().split(":"):
            key, equals, value = part.partition("=")
            key = _RENAMED.get(key, key)
            if not equals:
                words.append(part)
            elif key not in options:
                raise ValueError(f"unknown setting {key}=: expected {may_be}")
            else:
                numbers[key] = cls.number(value, may_be)
        return cls(words, numbers)

    @staticmethod
    def number(text: str, may_be: str) -> float:
        """Parse a finite number.

        Raises:
            ValueError: it is none.
        """
        try:
            value = float(text)
        except ValueError:
            value = math.nan
        if not math.isfinite(value):
            raise ValueError(f"{text!r} is not a number: expected {may_be}")
        return value


#: (group, its rate before, its rate during the update)
RateChanges = list[tuple[dict[str, Any], Any, Any]]


def multiply_rates(optimizer: torch.optim.Optimizer, factor: float) -> RateChanges:
    """Multiply the rate of every group; pass the result to `restore_rates`."""
    changed = [
        (group, group["lr"], group["lr"] * factor)
        for group in optimizer.param_groups
        if "lr" in group
    ]
    for group, _, during in changed:
        group["lr"] = during
    return changed


def restore_rates(changed: RateChanges) -> None:
    """Restore the rate of every group, as the same object.

    A rate that other code has set meanwhile stays.
    """
    for group, before, during in changed:
        if group["lr"] is during:
            group["lr"] = before


@dataclass(frozen=True)
class OptimizerSetting:
    """A learning rate and other arguments of an optimizer, as the user gave them."""

    lr: float
    arguments: dict[str, Any] = field(default_factory=dict)

    def call(self, name: str, params: str) -> str:
        """Return the Python call that creates the optimizer."""
        return f"{name}({', '.join([params, f'lr={self.lr:g}', *(f'{key}={value}' for key, value in self.arguments.items())])})"


def _parse_optimizer(
    value: str, keys: tuple[str, ...], betas: tuple[float, float]
) -> OptimizerSetting:
    """Parse ``LR[:key=number...]``, such as ``0.04:weight_decay=0.2:beta1=0.8``.

    Args:
        value: as the user wrote it.
        keys: which options the optimizer knows.
        betas: stand for the one that is not given.

    Raises:
        ValueError: says what it may be.
    """
    rate, *options = value.split(":")
    arguments: dict[str, Any] = {}
    for option in options:
        written, _, text = option.partition("=")
        key = _OPTION_BY_ARGUMENT.get(written, written)
        if key not in keys:
            known = (
                key if _OPTION_ARGUMENTS[key] == "betas" else _OPTION_ARGUMENTS[key] for key in keys
            )
            raise ValueError(f"{written!r} is not one of its settings ({', '.join(known)})")
        number = _parse_nonnegative(text, written)
        if key in ("beta1", "beta2"):
            first, second = arguments.get("betas", betas)
            arguments["betas"] = (number, second) if key == "beta1" else (first, number)
        else:
            arguments[_OPTION_ARGUMENTS[key]] = int(number) if key == "every" else number
    return OptimizerSetting(_parse_nonnegative(rate, "the learning rate"), arguments)


def _parse_nonnegative(text: str, what: str) -> float:
    try:
        number = float(text)
    except ValueError:
        raise ValueError(f"{what} must be a number, not {text!r}") from None
    if not 0 <= number < math.inf:
        raise ValueError(f"{what} must be a finite number of at least 0, not {text}")
    return number


def groups_at_rate(params: Any, arguments: dict[str, Any], lr: float) -> list[dict[str, Any]]:
    """Return a program's parameters as groups for another optimizer.

    Groups keep the ratios of their rates, and have no decay where they had none.

    Args:
        params: as the program gave them to its optimizer: tensors, (name, tensor) pairs, or groups.
        arguments: of its optimizer, by name; ``lr`` also where the program left it at torch's.
        lr: the new rate, in place of the ``lr`` among ``arguments``.

    Raises:
        ValueError: the program's optimizer maximizes, which another would turn round.
    """
    entries = list(params.values() if isinstance(params, dict) else params)
    grouped = bool(entries) and isinstance(entries[0], dict)
    if any(given.get("maximize") for given in [arguments, *(entries if grouped else [])]):
        raise ValueError(
            "the program's optimizer is made with maximize=True: another one is not put in its place"
        )
    if not grouped:
        return [{"params": entries}]
    of_groups = [group["lr"] for group in entries if "lr" in group]
    # what the program gave its optimizer, unless no group has it
    base = max(of_groups) if len(of_groups) == len(entries) else arguments.get("lr")
    groups = []
    for group in entries:
        kept: dict[str, Any] = {
            "params": group["params"]
            if isinstance(group["params"], torch.Tensor)
            else list(group["params"])
        }
        if "lr" in group and base:
            kept["lr"] = lr * group["lr"] / base
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
    """Describe an optimizer as a ``Fix``.

    Args:
        name: of the fix, and of its module in convergence/fixes.
        make: class or function, called with the parameters, ``lr`` and the setting's arguments.
        keys: which options it knows.
        summary: one line.
        control: the ``--fix`` text of its equal-budget control; ``{lr}`` in it stands for the rate.
        betas: its defaults.
        params: what ``make`` is given in the user's own code.
    """

    def lines(setting: OptimizerSetting) -> str:
        return (
            f"from feedline.convergence.fixes.{name} import {make.__name__}\n\noptimizer = "
            f"{setting.call(make.__name__, params)}\n"
        )

    def attach(setting: OptimizerSetting, training: TrainingHooks) -> None:
        training.optimizer(
            lambda _, params, arguments: make(
                groups_at_rate(params, arguments, setting.lr), lr=setting.lr, **setting.arguments
            )
        )

    value = "LR" + "".join(f"[:{key}=NUMBER]" for key in keys)
    return Fix(
        name,
        value,
        summary,
        lambda text: _parse_optimizer(text, keys, betas),
        lines,
        attach,
        control,
        replaces_optimizer=True,
    )


def at_most_one_dimension(param: Tensor) -> bool:
    """Tell whether a tensor is excluded by default.

    A sharded parameter counts with its whole shape.
    """
    return param.ndim <= 1


def without_small_decay(params: Any, weight_decay: float) -> list[dict[str, Any]]:
    """Split groups so that tensors of at most one dimension have no weight decay.

    Args:
        params: tensors, (name, tensor) pairs or groups.
        weight_decay: of groups that name none. A group without decay stays one.
    """
    entries = list(params)
    groups = entries if entries and isinstance(entries[0], dict) else [{"params": entries}]
    split = []
    for group in groups:
        members = (
            [group["params"]] if isinstance(group["params"], Tensor) else list(group["params"])
        )
        small = [
            at_most_one_dimension(each[1] if isinstance(each, tuple) else each) for each in members
        ]
        if not group.get("weight_decay", weight_decay) or not any(small):
            split.append({**group, "params": members})
            continue
        if not all(small):
            split.append(
                {
                    **group,
                    "params": [each for each, is_small in zip(members, small) if not is_small],
                }
            )
        split.append(
            {
                **group,
                "params": [each for each, is_small in zip(members, small) if is_small],
                "weight_decay": 0.0,
            }
        )
    return split
