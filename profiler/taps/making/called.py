"""What functions took in a stretch of the program's own code.

Functions are keyed by the ``id`` of their code object, because hashing a code object reads all of its bytecode.
"""

import sys
from collections import Counter
from collections.abc import Iterable
from time import perf_counter_ns
from types import CodeType, FrameType
from typing import Any, NamedTuple

from feedline.profiler.taps.making.seeing import Calls

Times = dict[int, int]  # id of a code -> ns
_MOST_EVENTS = 50_000  # calls and returns in a stretch, after which it is given up: about 50 ms
_MEASURED, _DEPTH = 50, 4  # calls that tell what seeing one costs, and how deep they are


class Called(NamedTuple):
    """What was called in a stretch. What seeing the calls costs is taken out of the times: it is more than many of them take.

    Attributes:
        direct: without calls by other functions that were called in the stretch. These add up to at most the stretch.
        whole: however deep it was called.
        inner: id of a code -> what it called.
        codes: by their ids.
        cost: ns that seeing the calls took of the stretch.
    """

    direct: Times
    whole: Times
    inner: dict[int, Times]
    codes: dict[int, CodeType]
    cost: int


class AllCalls:
    """Times every function that is called between ``on`` and ``off``."""

    def __init__(self) -> None:
        self._calls = Calls(self._entered, self._left, 0)
        self._open: list[tuple[CodeType, int, int]] = []  # with when it began, and the events until then
        self._times: Counter[int] = Counter()  # how often each is open
        self._called = Called({}, {}, {}, {}, 0)
        self._event_ns = 0
        self._event_ns = self._measured()

    def on(self) -> bool:
        """Start. False if the program has a trace function or a profile function of its own."""
        if sys.getprofile() is not None:
            return False
        self._open.clear()
        self._times.clear()
        self._called = Called({}, {}, {}, {}, 0)
        self._begun = self._calls.events
        self._calls.most = self._begun + _MOST_EVENTS
        return self._calls.on()

    def off(self) -> Called:
        """Stop, and tell what was called."""
        self._calls.off()
        now = perf_counter_ns()
        while self._open:
            self._close(now)
        return self._called._replace(cost=(self._calls.events - self._begun) * self._event_ns)

    @property
    def gave_up(self) -> bool:
        """Whether there were too many calls to see the end of the stretch."""
        return self._calls.events >= self._calls.most

    def end(self) -> None:
        """Stop observing."""
        self._calls.end()

    def _entered(self, code: CodeType) -> None:
        self._times[id(code)] += 1
        self._open.append((code, perf_counter_ns(), self._calls.events))

    def _left(self, code: CodeType, _: Any) -> None:
        now = perf_counter_ns()
        if self._times[id(code)]:
            while self._close(now) is not code:  # those above it raised, which is not told
                pass

    def _close(self, now: int) -> CodeType:
        code, begun, before = self._open.pop()
        took = max(now - begun - (self._calls.events - before) * self._event_ns, 0)
        called, key = self._called, id(code)
        called.codes[key] = code
        by = called.inner.setdefault(id(self._open[-1][0]), {}) if self._open else called.direct
        by[key] = by.get(key, 0) + took
        self._times[key] -= 1
        if not self._times[key]:
            called.whole[key] = called.whole.get(key, 0) + took
        return code

    def _measured(self) -> int:
        """ns that seeing a call or a return costs here."""

        def nothing(deeper: int) -> None:
            if deeper:
                nothing(deeper - 1)

        def calls() -> int:
            begun = perf_counter_ns()
            for _ in range(_MEASURED):
                nothing(_DEPTH)
            return perf_counter_ns() - begun

        unseen = min(calls(), calls())
        if not self.on():
            return 0
        seen = min(calls(), calls())
        self.off()
        return max(seen - unseen, 0) // (2 * _MEASURED * (_DEPTH + 1))


class Frame(NamedTuple):
    """A function that runs. The frame itself is not held, so nothing in it lives longer.

    Attributes:
        number: of the frame.
        at: index of the instruction in its code.
    """

    number: int
    code: CodeType
    at: int


def line_of(code: CodeType, at: int) -> int:
    """Of an instruction; 0 if unknown."""
    return next((line for begin, end, line in code.co_lines() if begin <= at < end and line), 0)


def running() -> list[Frame]:
    """What runs in this thread, the outermost first."""
    found: list[Frame] = []
    frame: FrameType | None = sys._getframe(1)
    while frame is not None:
        found.append(Frame(id(frame), frame.f_code, frame.f_lasti))
        frame = frame.f_back
    found.reverse()
    return found


def all_the_while(before: Iterable[Frame], after: Iterable[Frame], called: Called) -> list[tuple[Frame, Frame]]:
    """What ran in all of a stretch, the outermost first: as it was at both ends.

    Args:
        before, after: what ran at its ends.
        called: in it. A function that was called in it may have taken the place of an earlier call.
    """
    found = []
    for one, other in zip(before, after):
        if one.number != other.number or one.code is not other.code or id(one.code) in called.whole:
            break
        found.append((one, other))
    return found
