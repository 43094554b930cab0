"""Decides which errors a hook keeps from the training: its own, and none that a signal's handler raised.

A handler runs between any two lines of Python, so also within a hook: a time limit that a program sets
with ``signal.alarm`` has to reach it there too.
"""

import sys
from itertools import pairwise
from types import FrameType, TracebackType


def reraise_of_handler() -> None:
    """Raise the error that is being handled once more if a signal's handler raised it."""
    error = sys.exc_info()[1]
    if error is not None and _is_of_handler(error.__traceback__):
        raise


class _FailOpen:
    """Suppresses each ``Exception``, as ``contextlib.suppress``, but for those of signals' handlers."""

    def __enter__(self) -> None:
        pass

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> bool:
        return isinstance(error, Exception) and not _is_of_handler(traceback)


fail_open = _FailOpen()


def _is_of_handler(traceback: TracebackType | None) -> bool:
    """Tell whether a function in it was called as handlers are: with the frame that it interrupted."""
    frames = []
    while traceback is not None:
        frames.append(traceback.tb_frame)
        traceback = traceback.tb_next
    return any(_got(inner, outer) for outer, inner in pairwise(frames))


def _got(called: FrameType, frame: FrameType) -> bool:
    return any(
        value is frame or (type(value) is tuple and any(part is frame for part in value))
        for value in called.f_locals.values()
    )
