"""Marks in a trace of torch.profiler with a known time on feedline's clock, to align the two clocks.

The clock is read before each mark begins, so a mark lies between its own reading and that of the mark after it: whatever both clocks are,
the difference between them is known within the narrowest of these gaps (analysis/traces/windows.py).
"""

from contextlib import suppress
from typing import Any

import torch

from feedline.profiler import clock

_MARKS = 4  # the first finds nothing in the processor's caches; the narrowest gap counts
#: A range without the 10 us that record_function takes in Python. Private to torch, in 2.8 to 2.15.
_range: Any = getattr(torch._C._profiler, "_RecordFunctionFast", torch.profiler.record_function)


def mark() -> None:
    """Put marks into the trace that is being recorded, if there is one. Never raises."""
    with suppress(Exception):
        for _ in range(_MARKS):
            with _range(f"{clock.MARK}{clock.wall_ns()}"):
                pass
