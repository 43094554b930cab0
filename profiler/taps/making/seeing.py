"""Chooses how to observe Python calls on this version of Python."""

import sys

if sys.version_info >= (3, 12):
    from feedline.profiler.taps.making.by_monitoring import Calls, Stopwatch
else:
    from feedline.profiler.taps.making.by_tracing import Calls, Stopwatch

__all__ = ["Calls", "Stopwatch"]
