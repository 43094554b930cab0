"""Chooses how to observe Python calls on this version of Python."""

import sys

if sys.version_info >= (3, 12):
    from feedline.profiler.taps.making.by_monitoring import AllCalls, Calls, Stopwatch
else:
    from feedline.profiler.taps.making.by_tracing import AllCalls, Calls, Stopwatch

__all__ = ["AllCalls", "Calls", "Stopwatch"]
