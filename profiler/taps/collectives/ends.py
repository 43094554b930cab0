"""Records when collectives end.

A CPU backend completes a future in a thread of its own, where a callback records the end. Consequences:

- If the caller waits at once, the end of that wait is the end, and there is no callback.
- The callback needs the interpreter's lock, so its time can be late; if the program itself waits for the work, the end of the wait is used.
- A callback while the interpreter shuts down aborts the process (gloo with torch 2.13: 12 of 12 exits with work in flight),
  and one that a group's destructor waits for is a deadlock. At exit the process therefore waits until none is pending, as torch's
  destructor does a moment later, and groups are kept alive until then (tests/comm_tap/test_unchanged.py).

gloo's reduce_scatter, send and recv have no future: their end is known only if the program waits for them in Python.
"""

import atexit
import time
from threading import get_ident
from typing import Any

import torch.distributed as dist

from feedline.profiler import clock
from feedline.profiler.events import UNMEASURED, Stage
from feedline.profiler.store.segment import Segment
from feedline.profiler.taps.collectives.groups import Channel, Group, Groups
from feedline.profiler.taps.patch import Patches

_SETTLE_NS = 1_000_000_000  # a callback has left its thread for sure so long after its end
_WINDING_DOWN_S = 0.01  # the same, while another thread waits for it
_MOST_WAITING = 8  # works without a future, kept alive until they are waited for
COLLECTIVE = int(Stage.COLLECTIVE)  # a plain number is quicker to look up


class Row:
    """A collective that was started."""

    __slots__ = ("segment", "place", "start", "group", "channel", "ended")

    def __init__(self, segment: Segment, place: int | None, start: int, group: Group, channel: Channel) -> None:
        self.segment, self.place, self.start, self.group, self.channel = segment, place, start, group, channel
        self.ended = False

    def end(self, at: int) -> None:
        """Set the end; the first call counts."""
        if not self.ended:
            self.ended = True
            self.segment.end(self.place, COLLECTIVE, at - self.start)

    def unknown(self) -> None:
        if not self.ended:
            self.ended = True
            self.segment.end(self.place, COLLECTIVE, UNMEASURED)

    def done(self, _: object) -> None:
        """Called by the backend's thread. The group may be freed as soon as ``in_flight`` is empty, so this comes last."""
        at = clock.wall_ns()
        try:
            self.end(at)
        except Exception:
            pass
        finally:
            self.group.ended = at
            self.group.in_flight.pop(id(self), None)


class Ends:
    """Records the ends of works on the CPU."""

    def __init__(self, groups: Groups) -> None:
        self._groups = groups
        self._waiting: dict[int, tuple[Any, Row]] = {}
        self._last: tuple[Any, Row] | None = None
        self._expected: dict[int, Row] = {}  # by thread: what it waits for next
        self._look = 0
        self._at_exit = False

    def attach(self, patches: Patches) -> None:
        """Watch ``Work.wait`` and the end of the process; both stay, because a callback can come after a recording has ended."""
        original, expected = dist.Work.wait, self._expected

        def wait(work: Any, *args: Any, **kwargs: Any) -> Any:
            row = expected.pop(get_ident(), None) if expected else None
            if row is None:
                row = self._row(work)
            if row is None:
                return original(work, *args, **kwargs)
            result = original(work, *args, **kwargs)
            row.end(clock.wall_ns())
            return result

        patches.set(dist.Work, "wait", wait)
        if not self._at_exit:
            self._at_exit = True
            atexit.register(self.drain)

    def expect(self, row: Row) -> None:
        """This thread waits for the work next, in Python, so no callback is needed."""
        expected, thread = self._expected, get_ident()
        if thread in expected:  # it was waited for in C++, or never
            expected[thread].unknown()
        expected[thread] = row

    def watch(self, row: Row, pg: Any, work: Any, operation: str) -> None:
        """Record the end of a row."""
        group = row.group
        if row.start >= self._look:
            self._release(row.start)
        self._last = None
        if operation in row.channel.futureless:
            self._keep(row, work)
            return
        try:
            future = work.get_future()
        except RuntimeError:
            row.channel.futureless.add(operation)
            self._keep(row, work)
            return
        group.held = pg
        group.in_flight[id(row)] = row
        try:
            future.add_done_callback(row.done)
        except BaseException:
            group.in_flight.pop(id(row), None)
            raise
        if not row.ended:
            self._last = work, row

    def drain(self) -> None:
        """At process exit: wait until no callback is pending. It takes as long as the works, for which torch waits too."""
        while any(group.in_flight for group in self._groups):
            time.sleep(0.001)
        self.let_go()

    def let_go(self) -> None:
        """Drop references to finished works, and to groups without pending callbacks. Groups with work in flight are kept, so that their
        destructors, which would block, do not run.
        """
        self._last = None
        self._waiting.clear()
        done = [group for group in self._groups if group.held is not None and not group.in_flight]
        if any(clock.wall_ns() - group.ended < _SETTLE_NS for group in done):
            time.sleep(_WINDING_DOWN_S)
        for group in done:
            group.held = None

    def _row(self, work: Any) -> Row | None:
        last = self._last
        if last is not None and last[0] is work:
            self._last = None
            return last[1]
        known = self._waiting.pop(id(work), None)
        if known is None:
            return None
        if work.is_completed():  # some time ago
            known[1].unknown()
            return None
        return known[1]

    def _keep(self, row: Row, work: Any) -> None:
        for key, (other, waiting) in list(self._waiting.items()) if self._waiting else ():
            if len(self._waiting) >= _MOST_WAITING or other.is_completed():
                waiting.unknown()
                self._waiting.pop(key, None)
        self._waiting[id(work)] = work, row

    def _release(self, now: int) -> None:
        self._look = now + _SETTLE_NS
        for group in self._groups:
            if group.held is not None and not group.in_flight and now - group.ended > _SETTLE_NS:
                group.held = None
