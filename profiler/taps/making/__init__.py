"""Finds and times the function of the program that makes its batches, if there is no loader."""

from feedline.profiler.taps.making.tap import GIVES, NAME, attach

__all__ = ["GIVES", "NAME", "attach"]
