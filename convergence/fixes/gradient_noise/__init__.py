"""Noise on the weight of each sample's gradient."""

from feedline.convergence.fixes.gradient_noise.fix import FIX
from feedline.convergence.fixes.gradient_noise.noise import GradientNoise

__all__ = ["FIX", "GradientNoise"]
