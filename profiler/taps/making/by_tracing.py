"""Observes Python calls of one thread, up to Python 3.11.

All calls are seen by a trace function. Unlike a profile function it is told of nothing in the frames that are there already: for each frame
that it is told of, Python copies the local variables, and a copy in the loop's own frame would keep the program's tensors in memory. Known
functions are timed by _lsprof, in C: what a signal's handler raises then reaches the program, and the calls of C functions cost little.
"""

import sys
from collections.abc import Callable
from types import CodeType
from typing import Any


class Calls:
    """Observes all calls that begin between ``on`` and ``off``, in the thread that called ``on``.

    Args:
        entered, left: told of each call's code, and at its end of what it returned; None where it raised.

    Attributes:
        events: seen so far.
        most: events after which no more are seen.
    """

    def __init__(self, entered: Callable[[CodeType], None], left: Callable[[CodeType, Any], None], most: int) -> None:
        self.events, self.most = 0, most
        self._entered, self._left = entered, left
        self._seeing = False

    def on(self) -> bool:
        """Start. False if the program has a trace function of its own, or ``most`` calls were seen."""
        if sys.gettrace() is not None or self.events >= self.most:
            return False
        self._seeing = True
        sys.settrace(self._begins)
        return True

    def off(self) -> None:
        """Stop; a trace function that the program has set meanwhile stays."""
        self._seeing = False
        if sys.gettrace() == self._begins:
            sys.settrace(None)

    def end(self) -> None:
        self.off()

    def _begins(self, frame: Any, event: str, _: Any) -> Any:
        self.events += 1
        if self.events >= self.most or not self._seeing:  # or the program has put back what it had found there
            self.off()
            return None
        frame.f_trace_lines = False
        self._entered(frame.f_code)
        return self._ends

    def _ends(self, frame: Any, event: str, value: Any) -> Any:
        if event != "return":
            return self._ends
        self.events += 1
        frame.f_trace_lines = True
        self._left(frame.f_code, value)
        return None


def _profiler() -> Any:
    """Sees Python's own functions. Callable, for a program that asks for the profile function and sets it again."""
    import _lsprof

    class Profiler(_lsprof.Profiler):
        def __call__(self, *_: object) -> None: ...

    return Profiler(builtins=False)


class Stopwatch:
    """Times calls of these functions between ``on`` and ``off``.

    Attributes:
        took: function -> ns and calls, between the last ``on`` and ``off``.
        events: calls that were seen, since it was made 0.
    """

    def __init__(self, codes: frozenset[CodeType]) -> None:
        self.codes, self.events = codes, 0
        self.took: dict[CodeType, tuple[int, int]] = {}
        self._profiler: Any = _profiler()

    def on(self) -> bool:
        """Start. False if the program has a profile function of its own."""
        if sys.getprofile() is not None:
            return False
        self._profiler.enable()
        return True

    def off(self) -> None:
        """Stop; a profile function that the program has set meanwhile stays."""
        self.took = {}
        now: Any = sys.getprofile()
        if now is not self._profiler:
            return
        self._profiler.disable()
        for entry in self._profiler.getstats():
            self.events += entry.callcount
            if entry.code in self.codes:
                self.took[entry.code] = round(entry.totaltime * 1e9), entry.callcount
        self._profiler.clear()

    def end(self) -> None:
        self.off()
