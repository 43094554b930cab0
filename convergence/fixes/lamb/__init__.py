"""LAMB: Adam's direction, with each layer's step as long as its weights say."""

from feedline.convergence.fixes.lamb.fix import FIX
from feedline.convergence.fixes.lamb.lamb import Lamb

__all__ = ["FIX", "Lamb"]
