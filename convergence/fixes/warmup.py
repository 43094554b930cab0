"""Warm-up in samples, beside any scheduler."""

import math
from dataclasses import dataclass, replace
from typing import Any

import torch

from feedline.convergence.fix import (
    Fix,
    FixValue,
    NothingToChange,
    RateChanges,
    TrainingHooks,
    TrainingProgress,
    multiply_rates,
    restore_rates,
)

__all__ = ["FIX", "Warmup", "warmup_factor"]


_VALUE = (
    "5ep (epochs), 20000 (samples of all ranks), 5ep:from=0.125 (from an eighth of the rate; "
    "without it from 0)"
)


def warmup_factor(share: float, start: float = 0.0) -> float:
    """Return what to multiply the rate by, linear from ``start`` to 1.

    Args:
        share: of the warm-up that has passed, the samples of this update included, so that the
            first update is not lost at ``start=0``.
        start: factor at the beginning.
    """
    return start + (1 - start) * min(1.0, max(0.0, share))


class Warmup:
    """Multiplies the rates of an optimizer during an update, and restores them after it.

    No scheduler ever sees the factor. It may be of any kind (chainable, closed form, in epochs or
    in steps), and counts through the warm-up::

        warmup = Warmup(optimizer, samples=20_000)
        for images, labels in loader:
            loss(model(images), labels).backward()
            warmup.count(len(images) * ranks)  # once for each micro-batch where gradients are accumulated
            optimizer.step()
            scheduler.step()
            optimizer.zero_grad()

    Args:
        optimizer: one whose ``register_step_pre_hook`` works; of a wrapper that has none, the optimizer
            inside.
        samples: how long, in samples of all ranks together.
        start: factor at the beginning, 0 to 1. After scaling the rate by k, ``1 / k`` starts from the
            old rate.

    Raises:
        ValueError: a number that cannot be one, or an optimizer without hooks.
    """

    def __init__(self, optimizer: torch.optim.Optimizer, samples: int, start: float = 0.0) -> None:
        """Check the numbers, and hook into the optimizer's steps."""
        if not 0 <= samples < math.inf:
            raise ValueError(f"a warm-up cannot last {samples} samples")
        if not 0 <= start <= 1:
            raise ValueError(f"a warm-up cannot start at {start} times the rate: expected 0 to 1")
        try:
            self._hooks = [
                optimizer.register_step_pre_hook(self._before),
                optimizer.register_step_post_hook(self._after),
            ]
        except AttributeError as error:
            raise ValueError(
                f"{type(optimizer).__name__} takes no step hooks: pass the optimizer that it wraps"
            ) from error
        self.samples, self.start, self.counted = samples, start, 0
        self._changed: RateChanges = []

    def count(self, samples: int) -> None:
        """Count, before an update, the samples that go into it on all ranks together.

        Raises:
            ValueError: fewer than none.
        """
        if not samples >= 0:
            raise ValueError(f"an update cannot have {samples} samples")
        self.counted += samples

    @property
    def factor(self) -> float:
        """What the rate of the next update is multiplied by, with the samples counted so far."""
        return warmup_factor(self.counted / self.samples if self.samples else 1.0, self.start)

    def _before(self, optimizer: torch.optim.Optimizer, *_: Any) -> None:
        self._restore()  # the last update may have raised
        if self.counted == 0 and self.samples:
            raise ValueError(
                "no sample was counted before this update: call warmup.count(samples) before "
                "optimizer.step()"
            )
        if self.factor != 1:
            self._changed = multiply_rates(optimizer, self.factor)

    def _after(self, *_: Any) -> None:
        self._restore()

    def _restore(self) -> None:
        changed, self._changed = self._changed, []
        restore_rates(changed)

    def remove(self) -> None:
        """Remove the hooks from the optimizer, and restore the rates that an update has left."""
        for hook in self._hooks:
            hook.remove()
        self._restore()

    def state_dict(self) -> dict[str, int]:
        """Return what a checkpoint needs; the length and the start come from the program."""
        return {"counted": self.counted}

    def load_state_dict(self, state: dict[str, int]) -> None:
        """Continue from a saved state."""
        self.counted = int(state["counted"])


_FEWEST = 10  # samples: fewer are meant to be epochs


@dataclass(frozen=True)
class _WarmupSetting:
    """Length and start; one of epochs and samples is None."""

    epochs: float | None
    samples: int | None
    start: float


def _parse(text: str) -> _WarmupSetting:
    value = FixValue.of(text, _VALUE, ("from",))
    length, start = value.words[0] if len(value.words) == 1 else "", value.options.get("from", 0.0)
    in_epochs = length.endswith("ep")
    amount = FixValue.number(length.removesuffix("ep"), _VALUE)
    if amount <= 0 or not 0 <= start <= 1 or not (in_epochs or amount.is_integer()):
        raise ValueError(f"{text!r} is not a warm-up: expected {_VALUE}")
    if not in_epochs and amount < _FEWEST:
        raise ValueError(
            f"{amount:g} are samples, fewer than a warm-up can have: for epochs, give {amount:g}ep"
        )
    return _WarmupSetting(amount if in_epochs else None, None if in_epochs else int(amount), start)


def _lines(setting: _WarmupSetting) -> str:
    length = (
        f"{setting.samples}"
        if setting.epochs is None
        else f"int({setting.epochs:g} * len(loader.dataset))"
    )
    start = f", start={setting.start:g}" if setting.start else ""
    return (
        "from feedline.convergence.fixes.warmup import Warmup\n\n"
        f"warmup = Warmup(optimizer, samples={length}{start})\n"
        "# in the loop, before each optimizer.step():\n"
        "warmup.count(len(inputs))  # times the number of ranks"
    )


def _attach(setting: _WarmupSetting, training: TrainingHooks) -> None:
    def factor(progress: TrainingProgress) -> float:
        with_this_update = replace(progress, samples=progress.samples + progress.batch)
        if not with_this_update.samples:
            raise NothingToChange(
                "no samples were seen: no DataLoader hands over batches, and the model's input has "
                "no tensor with a row per sample"
            )
        return warmup_factor(with_this_update.after(setting.epochs, setting.samples), setting.start)

    training.rate(factor)


FIX = Fix(
    name="warmup",
    value=_VALUE,
    summary="a learning rate that grows linearly over the first epochs or samples",
    parse=_parse,
    lines=_lines,
    attach=_attach,
)
