"""The learning rate of every update: warm-up, then half a cosine to 0."""

import math
from dataclasses import dataclass

import torch

from acceptance.arms import SMALL, Arm
from feedline.convergence.fixes.lr_rule import scaled_rate
from feedline.convergence.fixes.warmup import warmup_factor


@dataclass(frozen=True)
class Schedule:
    """Rates of a training.

    Attributes:
        first: rate that the warm-up starts above.
        peak: rate after it.
        warmup, updates: of the warm-up, and in all.
    """

    first: float
    peak: float
    warmup: float
    updates: int

    @classmethod
    def of(cls, arm: Arm, per_epoch: int) -> "Schedule":
        """The schedule of an arm with this many updates per epoch."""
        peak = scaled_rate(arm.rate, arm.rule, arm.batch / SMALL) if arm.rule else arm.rate
        first = arm.rate if arm.rule else 0.0
        return cls(first, peak, arm.warmup * per_epoch, arm.epochs * per_epoch)

    def rate(self, updates: int) -> float:
        """The rate for the update after this many."""
        if updates < self.warmup:
            return self.peak * warmup_factor((updates + 1) / self.warmup, self.first / self.peak)
        return (
            self.peak
            * 0.5
            * (
                1
                + math.cos(math.pi * (updates - self.warmup) / max(1.0, self.updates - self.warmup))
            )
        )

    def set_rate(self, optimizer: torch.optim.Optimizer, updates: int) -> None:
        """Set it in every parameter group."""
        for group in optimizer.param_groups:
            group["lr"] = self.rate(updates)
