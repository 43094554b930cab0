"""Ghost batch norm: normalises parts of the batch separately, so that a large batch keeps the statistics of a small one."""

from feedline.convergence.fixes.ghost_bn.fix import FIX
from feedline.convergence.fixes.ghost_bn.modules import (
    GhostBatchNorm1d,
    GhostBatchNorm2d,
    GhostBatchNorm3d,
    convert_ghost_batchnorm,
)

__all__ = ["FIX", "GhostBatchNorm1d", "GhostBatchNorm2d", "GhostBatchNorm3d", "convert_ghost_batchnorm"]
