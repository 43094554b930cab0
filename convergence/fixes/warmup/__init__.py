"""The learning rate grows over the first samples of a training."""

from feedline.convergence.fixes.warmup.fix import FIX
from feedline.convergence.fixes.warmup.warmup import Warmup, warmup_factor

__all__ = ["FIX", "Warmup", "warmup_factor"]
