"""Which function of the program makes its batches, where no loader does, and what that takes."""

from feedline.profiler.taps.making.tap import GIVES, NAME, attach

__all__ = ["GIVES", "NAME", "attach"]
