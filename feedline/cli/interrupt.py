"""Ctrl-C in a command: it ends with one line and exit code 130, and its output is complete."""

import os
import signal
import time
from contextlib import suppress
from types import FrameType

#: A key that is held down sends 30 signals per second: they are one Ctrl-C, or they would break
#: what cleans up behind the first.
SAME_S = 2.0


class _Interrupts:
    """Handler of SIGINT in a feedline command: raises KeyboardInterrupt, once."""

    def __init__(self) -> None:
        self._last = float("-inf")

    def attach(self) -> None:
        """Replace Python's handler of SIGINT.

        A shell that starts a background job ignores the signal; then it stays ignored.
        """
        with suppress(ValueError):  # not in the main thread
            if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
                signal.signal(signal.SIGINT, self)

    def __call__(self, number: int, frame: FrameType | None) -> None:
        now = time.monotonic()
        if now - self._last < SAME_S:
            return
        self._last = now
        raise KeyboardInterrupt

    @property
    def came(self) -> bool:
        """Return whether Ctrl-C was pressed."""
        return self._last > float("-inf")

    def detach(self) -> None:
        """Ignore SIGINT once the command is done.

        Python's cleanup is not interrupted, and the exit code stays.
        """
        with suppress(ValueError):
            if signal.getsignal(signal.SIGINT) is self:
                signal.signal(signal.SIGINT, signal.SIG_IGN)
        # Ctrl-C inside an exec of text, as of a dataclass, makes ``python -m`` end by the signal
        # unless a later exec succeeds
        exec("")


interrupts = _Interrupts()


def in_foreground() -> bool:
    """Return whether a terminal sends Ctrl-C to this process, and so to the command as well.

    It goes to all processes of the group in the foreground.
    """
    try:
        with open("/dev/tty", "rb", buffering=0) as terminal:
            return os.tcgetpgrp(terminal.fileno()) == os.getpgrp()
    except OSError:  # there is none
        return False
