"""Removes feedline's frames from the program's tracebacks."""

from types import TracebackType


def leave_out_us(error: BaseException) -> None:
    """Remove feedline's frames from the traceback of an exception and of its causes, except where feedline raised it."""
    seen: set[int] = set()
    waiting: list[BaseException | None] = [error]
    while waiting:
        here = waiting.pop()
        if here is None or id(here) in seen:
            continue
        seen.add(id(here))
        here.__traceback__ = _without_us(here.__traceback__)
        waiting += [here.__cause__, here.__context__, *getattr(here, "exceptions", ())]


def _without_us(trace: TracebackType | None) -> TracebackType | None:
    frames = []
    while trace is not None:
        frames.append(trace)
        trace = trace.tb_next
    kept: TracebackType | None = None
    for frame in reversed(frames):
        if kept is None or not str(frame.tb_frame.f_globals.get("__name__", "")).startswith("feedline."):
            frame.tb_next = kept
            kept = frame
    return kept
