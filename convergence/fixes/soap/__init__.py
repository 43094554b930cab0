"""SOAP: Adam in the eigenbasis of Shampoo's preconditioner."""

from feedline.convergence.fixes.soap.fix import FIX
from feedline.convergence.fixes.soap.soap import soap

__all__ = ["FIX", "soap"]
