"""LARS: each layer's rate follows the ratio of its weights' norm to its gradient's."""

from feedline.convergence.fixes.lars.fix import FIX
from feedline.convergence.fixes.lars.lars import Lars

__all__ = ["FIX", "Lars"]
