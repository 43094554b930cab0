"""Records Python's garbage collections, through ``gc.callbacks``.

A collection holds the GIL, in whichever thread it begins. One that takes a millisecond or more has
a record of its own; shorter ones are added up, and a record is written for each millisecond of
them. Whether collections are enabled is never changed.
"""

import gc
import sys
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from feedline.profiler import clock
from feedline.profiler.events import UNMEASURED, Stage
from feedline.profiler.fail_open import fail_open
from feedline.profiler.record.recorder import recorder
from feedline.profiler.taps.patch import Patches
from feedline.profiler.taps.source_names import NAME_BYTES, call_site

NAME = "gc"
GIVES = "garbage collections"

_LONG_NS = 1_000_000
_MOST_WAITING = 100  # records that could not be written where they were made


class GarbageTap:
    """Called by Python when a collection begins and when it ends."""

    def __init__(self) -> None:
        self._wall_ns = clock.wall_ns
        self._begun = 0
        self._called = False
        self._short: list[int] = [0, 0, 0]  # collections, ns and objects of those not yet written
        self._waiting: list[tuple[int, dict[str, int], str]] = []

    def attach(self, _: Patches) -> Callable[[], None]:
        """Attach; returns a function that ends it."""
        gc.callbacks.append(self._notice)
        return self.undo

    def undo(self) -> None:
        """Stop, and write what has been added up."""
        with suppress(ValueError):
            gc.callbacks.remove(self._notice)
        with fail_open:
            now = self._wall_ns()
            self._write_short(now, 0)
            # counted object by object, so not before the training's end
            self._write(now, 0, gc.get_freeze_count(), 0, 0)

    def _notice(self, phase: str, info: dict[str, int]) -> None:
        with fail_open:  # it would be printed, and the training must not see it
            if phase == "start":
                self._called = _is_called()
                self._begun = self._wall_ns()
            elif self._begun:
                self._ended(self._wall_ns() - self._begun, info)
                self._begun = 0

    def _ended(self, wall: int, info: dict[str, int]) -> None:
        generation, collected = info["generation"], info["collected"]
        if wall >= _LONG_NS:
            # Only a call is looked at: on Python 3.11 another collection may begin while a frame
            # is being made.
            place = _place(sys._getframe(2)) if self._called else ""
            self._write(self._begun, wall, collected, generation, 1, self._called, place)
            return
        short = self._short
        short[0] += 1
        short[1] += wall
        short[2] += collected
        if short[1] >= _LONG_NS:
            self._write_short(self._begun, generation)

    def _write_short(self, start: int, generation: int) -> None:
        number, wall, collected = self._short
        self._short = [0, 0, 0]
        if number:
            self._write(start, wall, collected, generation, number)

    def _write(
        self,
        start: int,
        wall: int,
        collected: int,
        generation: int,
        collections: int,
        called: bool = False,
        place: str = "",
    ) -> None:
        fields = {
            "wall": wall,
            "cpu": collected,
            "runqueue": UNMEASURED,
            "nbytes": int(called),
            "number": generation,
            "extra": collections,
        }
        self._waiting.append((start, fields, place))
        del self._waiting[:-_MOST_WAITING]
        segment = recorder.always_on_segment() or recorder.segment
        if segment is None:
            self._waiting.clear()
        elif not segment.is_empty and segment.take():  # a program may only import torch
            try:
                waiting, self._waiting = self._waiting, []
                for begun, known, name in waiting:
                    source = segment.name_id(name) if name else 0
                    segment.add(Stage.GARBAGE, begun, source=source, **known)
            finally:
                segment.give()


def _is_called() -> bool:
    """Tell whether the program called gc.collect: Python itself has too few new objects to begin."""
    return not gc.isenabled() or gc.get_count()[0] <= gc.get_threshold()[0]


def _place(frame: Any) -> str:
    """Return the program's line that called; empty: it is not known, or does not fit."""
    place = str(call_site(frame).get("made_at", ""))
    return place if len(place.encode()) <= NAME_BYTES else ""
