"""LARC: LARS that never goes faster than the rate it was given."""

from feedline.convergence.fixes.larc.fix import FIX
from feedline.convergence.fixes.larc.larc import Larc

__all__ = ["FIX", "Larc"]
