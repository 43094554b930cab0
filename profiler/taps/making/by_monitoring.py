"""Observes Python calls of one thread with ``sys.monitoring`` (Python 3.12 and later), beside tools of the program."""

import sys
import threading
from collections.abc import Callable, Mapping
from types import CodeType
from typing import Any

from feedline.profiler import clock

_IDS = 4, 3  # of tools that have no name
_NAME = "feedline"
_monitoring: Any = getattr(sys, "monitoring", None)


class _Tool:
    """A tool id whose callbacks see only the thread that called ``on``, between ``on`` and ``off``.

    Attributes:
        events: seen so far, those of other threads too: these cost as much.
        most: events after which no more are seen; 0: all are.
    """

    def __init__(self, begins: Callable[[CodeType], None], ends: Callable[[CodeType, Any], None]) -> None:
        self.events = self.most = 0
        self.seeing = False
        self._thread = 0
        self.number = self._take_id()
        events = _monitoring.events
        self.local = events.PY_START | events.PY_RESUME | events.PY_RETURN | events.PY_YIELD
        self.every = self.local | events.PY_THROW | events.PY_UNWIND

        def begin(code: CodeType, *_: Any) -> None:
            if self._counts():
                begins(code)

        def end(code: CodeType, _: int, value: Any) -> None:
            if self._counts():
                ends(code, value)

        def unwind(code: CodeType, *_: Any) -> None:
            if self._counts():
                ends(code, None)

        self._register(
            {
                **dict.fromkeys((events.PY_START, events.PY_RESUME, events.PY_THROW), begin),
                **dict.fromkeys((events.PY_RETURN, events.PY_YIELD), end),
                events.PY_UNWIND: unwind,
            }
        )

    def _take_id(self) -> int:
        """Raises RuntimeError: other tools have all."""
        for number in _IDS:
            if _monitoring.get_tool(number) is None:
                _monitoring.use_tool_id(number, _NAME)
                return number
        raise RuntimeError("no tool id of sys.monitoring is free")

    def _register(self, told: Mapping[int, Callable[..., None] | None]) -> None:
        self._told = told
        for event, function in told.items():
            _monitoring.register_callback(self.number, event, function)

    def on(self) -> None:
        self._thread, self.seeing = threading.get_ident(), True

    def end(self) -> None:
        """Free the id."""
        self.seeing = False
        self._register(dict.fromkeys(self._told))
        _monitoring.free_tool_id(self.number)

    def _counts(self) -> bool:
        if not self.seeing:
            return False
        self.events += 1
        if 0 < self.most <= self.events:
            self.seeing = False
            _monitoring.set_events(self.number, 0)
        return threading.get_ident() == self._thread


class Calls:
    """As in by_tracing.py."""

    def __init__(self, entered: Callable[[CodeType], None], left: Callable[[CodeType, Any], None], most: int) -> None:
        self.most = most
        self._tool = _Tool(entered, left)

    @property
    def events(self) -> int:
        return self._tool.events

    def on(self) -> bool:
        if self.events >= self.most:
            return False
        self._tool.most = self.most
        self._tool.on()
        _monitoring.set_events(self._tool.number, self._tool.every)
        return True

    def off(self) -> None:
        self._tool.seeing = False
        _monitoring.set_events(self._tool.number, 0)

    def end(self) -> None:
        self.off()
        self._tool.end()


class Stopwatch:
    """As in by_tracing.py. Only these functions are watched; others cost nothing."""

    def __init__(self, codes: frozenset[CodeType]) -> None:
        self.codes, self.events = codes, 0
        self.took: dict[CodeType, tuple[int, int]] = {}
        self._open: list[tuple[CodeType, int]] = []
        self._tool = _Tool(self._entered, self._left)
        self._watch(self._tool.local)

    def on(self) -> bool:
        self.took = {}
        self._open.clear()
        self._tool.on()
        return True

    def off(self) -> None:
        self._tool.seeing = False
        self.events += sum(calls for _, calls in self.took.values())

    def end(self) -> None:
        self._watch(0)
        self._tool.end()

    def _watch(self, events: int) -> None:
        for code in self.codes:
            _monitoring.set_local_events(self._tool.number, code, events)

    def _entered(self, code: CodeType) -> None:
        self._open.append((code, clock.wall_ns()))

    def _left(self, code: CodeType, _: Any) -> None:
        now = clock.wall_ns()
        while self._open:  # those above it raised, which is not told
            one, begun = self._open.pop()
            if one is code:
                if all(other is not code for other, _ in self._open):
                    took, calls = self.took.get(code, (0, 0))
                    self.took[code] = took + now - begun, calls + 1
                return
