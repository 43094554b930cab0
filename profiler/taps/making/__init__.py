"""Observes the program's own code between models, backward passes and updates: where time goes, and what makes batches without a loader."""

from feedline.profiler.taps.making.tap import GIVES, NAME, attach

__all__ = ["GIVES", "NAME", "attach"]
