"""As many more epochs as a larger batch is predicted to need."""

from feedline.convergence.fixes.longer.fix import FIX
from feedline.convergence.fixes.longer.inflation import Longer, inflation, longer

__all__ = ["FIX", "Longer", "inflation", "longer"]
