"""The description of a fix: its setting, its control, and where it acts on an unchanged training."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

import torch


@dataclass(frozen=True)
class Progress:
    """Progress of the training before an update.

    Attributes:
        updates: optimizer steps made.
        samples: samples seen by all ranks.
        samples_per_epoch: of the training's dataset, all ranks together; None: its loader has no length.
        batch: samples of this update, all ranks together.
        ranks: processes of the training.
    """

    updates: int
    samples: int
    samples_per_epoch: int | None
    batch: int
    ranks: int

    def after(self, epochs: float | None, samples: int | None) -> float:
        """Share (0 to 1) of a phase of this many epochs, or samples, that has passed.

        Raises:
            ValueError: it is in epochs, and the length of an epoch is unknown.
        """
        if epochs is not None and self.samples_per_epoch is None:
            raise ValueError("the loader does not say how many samples an epoch has: give the length in samples")
        length = samples if epochs is None else epochs * (self.samples_per_epoch or 0)
        return min(1.0, self.samples / length) if length else 1.0


class Training(Protocol):
    """The places of a training at which a fix can act. Changes are undone with the recording (convergence/apply)."""

    ranks: int

    def optimizer(self, make: Callable[[type[torch.optim.Optimizer], Any, dict[str, Any]], torch.optim.Optimizer]) -> None:
        """Make another optimizer where the program makes torch's SGD, Adam or AdamW: ``make(its class, params, its arguments)``."""

    def made_optimizer(self, act: Callable[[torch.optim.Optimizer], None]) -> None:
        """Called with each optimizer after its creation, before a scheduler sees it."""

    def rate(self, factor: Callable[[Progress], float]) -> None:
        """Multiply every learning rate of an update by a factor and restore it afterwards, so that no scheduler sees the change."""

    def model(self, act: Callable[[torch.nn.Module], None]) -> None:
        """Called with each outermost model before its first training forward. Parameters and buffers must stay the same objects."""

    def output(self, act: Callable[[torch.Tensor], torch.Tensor]) -> None:
        """Called with the output tensor (first dimension: samples) of each outermost training forward; its result replaces the output."""


@dataclass(frozen=True)
class Fix:
    """One fix, as ``feedline run --fix NAME=VALUE`` and ``feedline converge`` know it.

    Attributes:
        name: as the user writes it.
        value: what VALUE may be, for the help.
        summary: what it does, in one line.
        parse: VALUE as a setting. ValueError says what it may be.
        lines: Python that the user would write for this setting, imports included, ready to paste.
        attach: applies it to an unchanged training; None: it cannot be applied from outside, ``lines`` shows how.
        control: the ``--fix`` text of the control that it must beat at equal budget; "": the unchanged training.
        replaces_optimizer: it is an optimizer with a rate of its own.
    """

    name: str
    value: str
    summary: str
    parse: Callable[[str], Any]
    lines: Callable[[Any], str]
    attach: Callable[[Any, Training], None] | None = None
    control: str = ""
    replaces_optimizer: bool = False
