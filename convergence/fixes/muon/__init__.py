"""Muon for the hidden weight matrices, AdamW for everything else, as one optimizer."""

from feedline.convergence.fixes.muon.fix import FIX
from feedline.convergence.fixes.muon.muon import MuonWithAdamW, muon

__all__ = ["FIX", "MuonWithAdamW", "muon"]
