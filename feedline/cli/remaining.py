"""How long a command takes: said before, and again with each of its runs."""

import time

from feedline.analysis.formatting import duration

_WORTH_S = 10.0  # less is not worth a word


def about(s: float) -> str:
    """Return a time to the second: 43 s, 2 min 10 s."""
    return f"{s:.0f} s" if s < 100 else duration(s)


class Remaining:
    """The time left of runs that are made one after another.

    Args:
        runs: how many.
        each_s: of one, as far as that is known before the first.
    """

    def __init__(self, runs: int, each_s: float | None = None) -> None:
        self._left, self._each_s = runs, each_s
        self._took: list[float] = []
        self._began = time.monotonic()

    def __str__(self) -> str:
        """Return ``, about 2 min 10 s left``; "" if that is unknown or hardly any time."""
        left_s = self.seconds
        return f", about {about(left_s)} left" if left_s and left_s >= _WORTH_S else ""

    @property
    def seconds(self) -> float | None:
        """Return the time left; None: not known."""
        if self._took:
            return self._left * sum(self._took) / len(self._took)
        return self._left * self._each_s if self._each_s is not None else None

    def begin(self) -> None:
        """Note that a run begins."""
        self._began = time.monotonic()

    def end(self, made: bool = True) -> None:
        """Note that a run ended, or was there already."""
        self._left -= 1
        if made:
            self._took.append(time.monotonic() - self._began)
