"""How long a command takes: said before, and again with each of its runs."""

import time
from collections.abc import Sequence

from feedline.analysis.text.formatting import duration

_WORTH_S = 10.0  # less is not worth a word


def about(s: float) -> str:
    """Return a time to the second: 43 s, 2 min 10 s."""
    return f"{s:.0f} s" if s < 100 else duration(s)


class Remaining:
    """The time left of runs that are made one after another.

    Args:
        runs: how many.
        each_s: of one, as far as that is known before the first.
        expected: of each run, if they differ. Unit: s.
    """

    def __init__(
        self, runs: int, each_s: float | None = None, expected: Sequence[float] = ()
    ) -> None:
        self._left = list(expected) or [each_s or 1.0] * runs
        self._known = bool(expected) or each_s is not None
        self._took_s = self._expected_s = 0.0
        self._began = time.monotonic()

    def __str__(self) -> str:
        """Return ``, about 2 min 10 s left``; "" if that is unknown or hardly any time."""
        left_s = self.seconds
        return f", about {about(left_s)} left" if left_s and left_s >= _WORTH_S else ""

    @property
    def seconds(self) -> float | None:
        """Return the time left; None: not known."""
        left_s = sum(self._left)
        if self._expected_s:
            return left_s * self._took_s / self._expected_s
        return left_s if self._known else None

    def begin(self) -> None:
        """Note that a run begins."""
        self._began = time.monotonic()

    def end(self, made: bool = True) -> None:
        """Note that a run ended, or was there already."""
        expected_s = self._left.pop(0)
        if made:
            self._took_s += time.monotonic() - self._began
            self._expected_s += expected_s
