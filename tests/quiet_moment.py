"""Tests that compare times begin when other programs leave the CPUs alone, if these do."""

import time

import psutil

LOOK_S = 0.25
#: Percent of all CPUs: a program that computes on one of two takes 50.
BUSY = 20.0
#: A machine that is always busy makes a test wait for this long, and all of them for that long.
FOR_ONE_S, FOR_ALL_S = 20.0, 240.0


class QuietMoment:
    """Knows how long the tests of this process have waited.

    Attributes:
        waited_s: all of them together.
    """

    def __init__(self) -> None:
        self.waited_s = 0.0

    def wait(self) -> float:
        """Wait until the CPUs are free, and return for how many seconds that took."""
        begun = time.monotonic()
        until = begun + min(FOR_ONE_S, max(0.0, FOR_ALL_S - self.waited_s))
        while psutil.cpu_percent(LOOK_S) > BUSY and time.monotonic() < until:
            pass
        took_s = time.monotonic() - begun
        self.waited_s += took_s - LOOK_S
        return took_s
