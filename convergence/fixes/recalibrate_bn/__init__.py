"""Recalibrates batch norm: exact statistics for inference, over some batches."""

from feedline.convergence.fixes.recalibrate_bn.fix import FIX
from feedline.convergence.fixes.recalibrate_bn.recalibrate import recalibrate

__all__ = ["FIX", "recalibrate"]
