"""Times the functions that make the program's batches."""

import random
import sys
from functools import lru_cache
from types import CodeType
from typing import Any

from feedline.profiler import clock, masks
from feedline.profiler.events import Stage
from feedline.profiler.record.recorder import recorder
from feedline.profiler.store.segment import Segment
from feedline.profiler.taps.making.seeing import Stopwatch

_CLOSELY = 32  # steps that are looked at one after another, to begin with
_EVENT_NS, _LOOK_NS = 300, 60_000  # cost of observing a call, and of observing a step
_BUDGET = 0.003  # of the time, for the looks that follow
NAME_BYTES = 56  # room in a record
_UNNAMED = {
    "<lambda>": "a lambda",
    "<genexpr>": "a generator",
    **{f"<{kind}comp>": f"a {kind} comprehension" for kind in ("list", "dict", "set")},
}


class Timer:
    """Times them between two calls of models, backward passes and updates, in some steps, and records which steps those are.

    Attributes:
        looks: this step is looked at.
    """

    gives_up = False

    def __init__(self, codes: frozenset[CodeType]) -> None:
        self._watch = Stopwatch(codes)
        self._random = random.Random(0)
        self.looks = False
        self._names = {code: name_of(code) for code in codes}
        self._begun: clock.Moment = 0, 0, 0
        self._since = self._next = self._looks = 0
        self._copied = 0  # ns, by calls inside

    def on(self) -> bool:
        """Code between those calls begins. False if it cannot be observed."""
        if not self._watch.on():
            self.looks = False
            return False
        self._copied = 0
        self._begun = clock.now()
        return True

    def off(self) -> None:
        """The next of those calls begins."""
        wall, cpu, queue = clock.since(self._begun)
        self._watch.off()
        segment, waited = recorder.main, max(wall - cpu - max(queue, 0), 0)
        if segment is None:
            return
        for code, (took, calls) in self._watch.took.items():
            asleep, self._copied, copied = max(waited - (wall - took), 0), 0, self._copied
            name = segment.name_id(self._names[code])
            segment.add(Stage.MADE, self._begun[0], took, took - asleep, copied, 0, calls, wall, name)

    def end(self) -> None:
        """Stop observing."""
        self._watch.end()

    def step_ends(self, segment: Segment | None) -> None:
        """An update was made. None: the next step is not recorded."""
        now = clock.wall_ns()
        if self._since:
            cost = _LOOK_NS + _EVENT_NS * self._watch.events
            if self.looks and segment is not None:
                segment.add(Stage.LOOKED, self._since, now - self._since, extra=self._watch.events)
            self._looks += 1
            rest = cost / _BUDGET * (0.5 + self._random.random())  # irregularly: else what every tenth step does may always be missed
            self._next = now + (int(rest) if self._looks > _CLOSELY else 0)
        self._watch.events = 0
        self.looks = segment is not None and now >= self._next
        self._since = now if self.looks else 0

    def copied(self, took: int) -> None:
        """A tensor was copied in this many ns; if a function that makes batches did it, that time is a stage of its own."""
        frame: Any = sys._getframe(1)
        while frame is not None:
            if frame.f_code in self._watch.codes:
                self._copied += took
                return
            frame = frame.f_back


@lru_cache(maxsize=1000)
def _place(file: str) -> str:
    return masks.source(file)


def name_of(code: CodeType, lines: tuple[int, int] | None = None, around: bool = False) -> str:
    """``get_batch (train.py:116)``, or with lines ``lines 120 to 131 (train.py)``.

    Args:
        around: the code from the first line around the loop to the second.
    """
    name = getattr(code, "co_qualname", code.co_name).rpartition("<locals>.")[2]
    name = _UNNAMED.get(name, name)
    place = _place(code.co_filename)
    if lines is None:
        place = f"{place}:{code.co_firstlineno}"
    elif around:
        name = f"loop around line {lines[0]}" if lines[0] == lines[1] else f"loop from line {lines[0]} around to {lines[1]}"
    else:
        name = f"line {lines[0]}" if lines[0] == lines[1] else f"lines {lines[0]} to {lines[1]}"
    if len(f"{name} ({place})".encode()) > NAME_BYTES:
        library = masks.library(code.co_filename)
        place = f"{f'{library}…/' if library else ''}{place.rpartition('/')[2]}"
    room = NAME_BYTES - len(" ()")
    if lines is None:
        name = _cut(name, max(room - len(place.encode()), 8))
    else:  # without its numbers it says nothing
        place = _cut(place, room - len(name))
    return f"{name} ({place})"


def _cut(text: str, size: int) -> str:
    """Shorten a text to ``size`` bytes of UTF-8, with an ellipsis where something is cut off."""
    own = text.encode()
    return text if len(own) <= size else f"{own[: size - len('…'.encode())].decode(errors='ignore')}…"
