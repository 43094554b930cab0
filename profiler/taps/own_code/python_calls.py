"""Observes Python calls of one thread: by ``sys.monitoring``, which Python has from 3.12 on.

Before, all calls are seen by a trace function. Unlike a profile function it is told of nothing in the
frames that are there already: for each frame that it is told of, Python 3.10 copies the local
variables, and a copy in the loop's own frame would keep the program's tensors in memory. It is told
of a generator each time that one goes on, so Python 3.10 sees no calls. Known functions are
timed by _lsprof, in C: what a signal's handler raises then reaches the program, and the calls of C
functions cost little.
"""

import functools
import sys
import threading
from collections import Counter
from collections.abc import Callable, Mapping
from time import perf_counter_ns
from types import CodeType, FrameType
from typing import Any, NamedTuple

from feedline.profiler import clock

_COPIES_LOCALS = sys.version_info < (3, 11)


class _HiddenTracer:
    """``sys.gettrace`` while calls are observed: a program that asks is told of none.

    Some make their loader without workers under a debugger.
    """

    def __init__(self) -> None:
        self._functions: tuple[Any, ...] = ()
        self.true: Any = sys.gettrace
        self._put: Any = None

    def hide(self, function: Any) -> None:
        """Hide a trace function from now on."""
        if any(one is function for one in self._functions):
            return
        self._functions += (function,)
        if self._put is None:
            self.true = sys.gettrace
            self._put = sys.gettrace = functools.wraps(self.true)(lambda: self._seen())

    def show(self, function: Any) -> None:
        """Hide it no more."""
        self._functions = tuple(one for one in self._functions if one is not function)
        if not self._functions and sys.gettrace is self._put:
            self._put, sys.gettrace = None, self.true

    def _seen(self) -> Any:
        function = self.true()
        return None if any(one is function for one in self._functions) else function


_hidden = _HiddenTracer()


class _TracedCalls:
    """Observes all calls that begin between ``on`` and ``off``, in the thread that called ``on``.

    Args:
        entered, left: told of each call's code, and at its end of what it returned; None where it
            raised.

    Attributes:
        events: seen so far.
        most: events after which no more are seen.
    """

    def __init__(
        self, entered: Callable[[CodeType], None], left: Callable[[CodeType, Any], None], most: int
    ) -> None:
        self.events, self.most = 0, most
        self._entered, self._left = entered, left
        self._seeing = False
        self._tracer = self._begins  # one object, to know it again

    def on(self) -> bool:
        """Start.

        False if the program has a trace function of its own, or ``most`` calls were seen.
        """
        if _COPIES_LOCALS or _hidden.true() is not None or self.events >= self.most:
            return False
        self._seeing = True
        _hidden.hide(self._tracer)
        sys.settrace(self._tracer)
        return True

    def off(self) -> None:
        """Stop; a trace function that the program has set meanwhile stays."""
        self._seeing = False
        if _hidden.true() is self._tracer:
            sys.settrace(None)
        frame: FrameType | None = sys._getframe(1)
        while frame is not None:  # those that go on: a debugger wants their lines
            if frame.f_trace == self._ends:
                frame.f_trace_lines, frame.f_trace = True, None
            frame = frame.f_back

    def end(self) -> None:
        self.off()
        _hidden.show(self._tracer)

    def _begins(self, frame: Any, event: str, _: Any) -> Any:
        self.events += 1
        # or the program has put back what it had found there
        if self.events >= self.most or not self._seeing:
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
    """Return a profiler that sees Python's own functions.

    It can be called, for a program that asks for the profile function and sets it again.
    """
    import _lsprof

    class Profiler(_lsprof.Profiler):
        def __call__(self, *_: object) -> None: ...

    return Profiler(builtins=False)


class _TracingStopwatch:
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


_IDS = 4, 3  # of tools that have no name
_TOOL_NAME = "feedline"
_monitoring: Any = getattr(sys, "monitoring", None)


class _Tool:
    """A tool id whose callbacks see only the thread that called ``on``, between ``on`` and ``off``.

    Attributes:
        events: seen so far, those of other threads too: these cost as much.
        most: events after which no more are seen; 0: all are.
    """

    def __init__(
        self, begins: Callable[[CodeType], None], ends: Callable[[CodeType, Any], None]
    ) -> None:
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
        """Take an id of ``sys.monitoring``.

        Raises RuntimeError: other tools have all.
        """
        for number in _IDS:
            if _monitoring.get_tool(number) is None:
                _monitoring.use_tool_id(number, _TOOL_NAME)
                return number
        raise RuntimeError("no tool id of sys.monitoring is free")

    def _register(self, callbacks: Mapping[int, Callable[..., None] | None]) -> None:
        self._callbacks = callbacks
        for event, function in callbacks.items():
            _monitoring.register_callback(self.number, event, function)

    def on(self) -> None:
        self._thread, self.seeing = threading.get_ident(), True

    def end(self) -> None:
        """Free the id."""
        self.seeing = False
        self._register(dict.fromkeys(self._callbacks))
        _monitoring.free_tool_id(self.number)

    def _counts(self) -> bool:
        if not self.seeing:
            return False
        self.events += 1
        if 0 < self.most <= self.events:
            self.seeing = False
            _monitoring.set_events(self.number, 0)
        return threading.get_ident() == self._thread


class _MonitoredCalls:
    """The same as ``_TracedCalls``, from Python 3.12 on."""

    def __init__(
        self, entered: Callable[[CodeType], None], left: Callable[[CodeType, Any], None], most: int
    ) -> None:
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


class _MonitoringStopwatch:
    """The same as ``_TracingStopwatch``, from Python 3.12 on. Only these functions are watched; others cost nothing."""

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
            innermost, begun = self._open.pop()
            if innermost is code:
                if all(other is not code for other, _ in self._open):
                    took, calls = self.took.get(code, (0, 0))
                    self.took[code] = took + now - begun, calls + 1
                return


if sys.version_info >= (3, 12):
    Calls, Stopwatch = _MonitoredCalls, _MonitoringStopwatch
else:
    Calls, Stopwatch = _TracedCalls, _TracingStopwatch


_Times = dict[int, int]  # id of a code -> ns
_MOST_EVENTS = 50_000  # calls and returns in a stretch, after which it is given up: about 50 ms
_MEASURED, _DEPTH = 50, 4  # calls that tell what seeing one costs, and how deep they are


class CalledTimes(NamedTuple):
    """What was called in a stretch.

    What seeing the calls costs is taken out of the times: it is more than many of them take.

    Attributes:
        direct: without calls by other functions that were called in the stretch. These add up to at
            most the stretch.
        whole: however deep it was called.
        inner: id of a code -> what it called.
        codes: by their ids.
        cost: ns that seeing the calls took of the stretch.
    """

    direct: _Times
    whole: _Times
    inner: dict[int, _Times]
    codes: dict[int, CodeType]
    cost: int


class CallTimes:
    """Times every function that is called between ``on`` and ``off``."""

    def __init__(self) -> None:
        self._calls = Calls(self._entered, self._left, 0)
        self._open: list[
            tuple[CodeType, int, int]
        ] = []  # with when it began, and the events until then
        self._times: Counter[int] = Counter()  # how often each is open
        self._called = CalledTimes({}, {}, {}, {}, 0)
        self._event_ns = 0
        self._event_ns = self._measured()

    def on(self) -> bool:
        """Start. False if the program has a trace function or a profile function of its own."""
        if sys.getprofile() is not None:
            return False
        self._open.clear()
        self._times.clear()
        self._called = CalledTimes({}, {}, {}, {}, 0)
        self._begun = self._calls.events
        self._calls.most = self._begun + _MOST_EVENTS
        return self._calls.on()

    def off(self) -> CalledTimes:
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
        """Return the ns that seeing a call or a return costs here."""

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


class RunningFrame(NamedTuple):
    """A function that runs. The frame itself is not held, so nothing in it lives longer.

    Attributes:
        number: of the frame.
        at: index of the instruction in its code.
    """

    number: int
    code: CodeType
    at: int
