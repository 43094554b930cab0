"""AdamW, as the control of LAMB and SOAP."""

from feedline.convergence.fixes.adamw.adamw import adamw
from feedline.convergence.fixes.adamw.fix import FIX

__all__ = ["FIX", "adamw"]
