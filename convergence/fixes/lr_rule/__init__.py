"""What becomes of the learning rate when the batch becomes k times larger."""

from feedline.convergence.fixes.lr_rule.fix import FIX
from feedline.convergence.fixes.lr_rule.rule import RULES, rate_factor, scale_rates, scaled_rate

__all__ = ["FIX", "RULES", "rate_factor", "scale_rates", "scaled_rate"]
