"""Delays Ctrl-C."""

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def deferred() -> Iterator[None]:
    """Delay SIGINT to the end of the block.

    The block writes files that belong together, or starts a process whose handle must not be lost.
    Outside the main thread, where no signal arrives, it does nothing.
    """
    if threading.current_thread() is not threading.main_thread() or not callable(
        before := signal.getsignal(signal.SIGINT)
    ):
        yield
        return
    arrived: list[int] = []
    signal.signal(signal.SIGINT, lambda number, _: arrived.append(number))
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
    if arrived:
        # from Python, with the frame that it interrupts: by that fail_open knows a handler's errors
        signal.raise_signal(signal.SIGINT)
