"""Records when collectives end.

A CPU backend completes a future in a thread of its own, where a callback records the end.
Consequences:

- If the caller waits at once, the end of that wait is the end, and there is no callback.
- The callback needs the interpreter's lock, so its time can be late; if the program itself waits for the work, the end of the wait is used.
- A callback while the interpreter shuts down aborts the process (gloo with torch 2.13: 12 of 12 exits with work in flight),
  and one that a group's destructor waits for is a deadlock. At exit the process therefore waits
  until none is pending, as torch's destructor does a moment later, and groups are kept alive until
  then (tests/collectives/test_unchanged.py).

gloo's reduce_scatter, send and recv have no future: their end is known only if the program waits
for them in Python.

On a GPU, start and end are events in its streams, read later without waiting for it. The first
event goes into the current stream before the call: NCCL's own stream waits for that point (torch's
ProcessGroupNCCL), so from there on no other rank waits for this one. The second goes into the
stream that a callback of the work's future is given, which waits for NCCL's end; torch runs that
callback at once, in the calling thread. A third, the anchor, in every _ANCHOR_EVERY collectives,
ties the GPU's clock to the host's (taps/gpu_timer.py). Written after torch's documentation of
CUDA-aware futures; not tested where there was no GPU. Not seen: replays of CUDA graphs; what a
capture launches does not run.
"""

import atexit
import sys
import time
from collections import deque
from functools import partial
from threading import get_ident
from types import FrameType
from typing import Any

import torch
import torch.distributed as dist

from feedline.profiler import clock
from feedline.profiler.events import UNMEASURED, Stage
from feedline.profiler.fail_open import reraise_of_handler
from feedline.profiler.store.segment import Segment
from feedline.profiler.taps.collectives.groups import Channel, RecordedGroup, RecordedGroups
from feedline.profiler.taps.gpu_timer import Anchor, Cuda
from feedline.profiler.taps.patch import Patches

_SETTLE_NS = 1_000_000_000  # a callback has left its thread for sure so long after its end
_WINDING_DOWN_S = 0.01  # the same, while another thread waits for it
_FUNCTIONAL, _FRAMES = "torch.distributed._functional_collectives", 12  # calls to look at
_MOST_WAITING = 8  # works without a future, kept alive until they are waited for
COLLECTIVE = int(Stage.COLLECTIVE)  # a plain number is quicker to look up


class StartedCollective:
    """A collective that was started."""

    __slots__ = ("segment", "place", "start", "group", "channel", "ended")

    def __init__(
        self,
        segment: Segment,
        place: int | None,
        start: int,
        group: RecordedGroup,
        channel: Channel,
    ) -> None:
        self.segment, self.place, self.start, self.group, self.channel = (
            segment,
            place,
            start,
            group,
            channel,
        )
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
        """Note the end of a work, called by the backend's thread.

        The group may be freed as soon as ``in_flight`` is empty, so this comes last.
        """
        at = clock.wall_ns()
        try:
            self.end(at)
        except Exception:
            reraise_of_handler()
        finally:
            self.group.ended = at
            self.group.in_flight.pop(id(self), None)


class Ends:
    """Records the ends of works on the CPU."""

    def __init__(self, groups: RecordedGroups) -> None:
        self._groups = groups
        self._waiting: dict[int, tuple[Any, StartedCollective]] = {}
        self._last: tuple[Any, StartedCollective] | None = None
        self._expected: dict[int, StartedCollective] = {}  # by thread: what it waits for next
        self._look = 0
        self._at_exit = False

    def attach(self, patches: Patches) -> None:
        """Watch ``Work.wait`` and the end of the process.

        Both stay, because a callback can come after a recording has ended.
        """
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

    def expect(self, row: StartedCollective) -> None:
        """Note that this thread waits for the work next, in Python, so no callback is needed."""
        expected, thread = self._expected, get_ident()
        if thread in expected:  # it was waited for in C++, or never
            expected[thread].unknown()
        expected[thread] = row

    def watch(self, row: StartedCollective, pg: Any, work: Any, operation: str) -> None:
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
            future.add_done_callback(partial(self._done, row))
        except BaseException:
            group.in_flight.pop(id(row), None)
            raise
        if not row.ended:
            self._last = work, row

    def _done(self, row: StartedCollective, future: object) -> None:
        """Note the end of a work, called by the backend's thread."""
        last = self._last
        if last is not None and last[1] is row:  # the work holds its tensors
            self._last = None
        row.done(future)

    def drain(self) -> None:
        """Wait until no callback is pending, at process exit.

        It takes as long as the works, for which torch waits too.
        """
        while any(group.in_flight for group in self._groups):
            time.sleep(0.001)
        self.let_go()

    def let_go(self) -> None:
        """Drop references to finished works, and to groups without pending callbacks.

        Groups with work in flight are kept, so that their destructors, which would block, do not
        run.
        """
        self._last = None
        self._waiting.clear()
        done = [group for group in self._groups if group.held is not None and not group.in_flight]
        if any(clock.wall_ns() - group.ended < _SETTLE_NS for group in done):
            time.sleep(_WINDING_DOWN_S)
        for group in done:
            group.held = None

    def _row(self, work: Any) -> StartedCollective | None:
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

    def _keep(self, row: StartedCollective, work: Any) -> None:
        for key, (other, waiting) in list(self._waiting.items()) if self._waiting else ():
            if len(self._waiting) >= _MOST_WAITING or other.is_completed():
                waiting.unknown()
                self._waiting.pop(key, None)
        if _is_functional():  # C++ waits for it, which is not seen
            row.unknown()
            return
        self._waiting[id(work)] = work, row

    def _release(self, now: int) -> None:
        self._look = now + _SETTLE_NS
        for group in self._groups:
            if group.held is not None and not group.in_flight and now - group.ended > _SETTLE_NS:
                group.held = None


def _is_functional() -> bool:
    """Return whether a functional collective is being made, as DTensor makes them."""
    frame: FrameType | None = sys._getframe(1)
    left = _FRAMES
    while frame is not None and left:
        if frame.f_globals.get("__name__") == _FUNCTIONAL:
            return True
        frame, left = frame.f_back, left - 1
    return False


_QUEUE = 4096  # collectives that the GPU has not passed
# elapsed_time is a float32 of ms: within 100 ms its steps are 8 ns, within 1,000 s 60 us
_ANCHOR_EVERY = 64


class _Timed:
    """The events of one collective."""

    __slots__ = ("device", "begin", "end", "anchor", "row")

    def __init__(self, device: int, begin: Any, anchor: Anchor) -> None:
        self.device, self.begin, self.anchor = device, begin, anchor
        self.end: Any = None
        self.row: StartedCollective | None = None


class CudaEnds:
    """Times collectives on GPUs."""

    def __init__(self, cuda: Cuda | None = None) -> None:
        self._cuda = cuda or Cuda()
        self._pending: deque[_Timed] = deque()
        self._anchors: dict[int, tuple[Anchor, int]] = {}
        self._aside: dict[int, Any] = {}
        self.lost = 0

    def begin(self, device: torch.device) -> _Timed | None:
        """Mark the start on the GPU; None while a graph is captured."""
        if not self._cuda.ready():
            self.lost += 1
            return None
        self._read()
        if len(self._pending) >= _QUEUE:
            self.lost += 1
            return None
        index = device.index if device.index is not None else self._cuda.device()
        begin = self._cuda.event()
        timed = _Timed(index, begin, self._anchor(index))
        begin.record(self._cuda.current_stream(index))
        return timed

    def watch(self, row: StartedCollective, work: Any, timed: _Timed) -> None:
        """Mark its end.

        It stays unknown if the work has no future (gloo's send, collectives that NCCL launches
        together).

        Args:
            row: the collective.
            work: None: the caller asked for none, so NCCL has put the collective into the current
                stream (torch 2.8 and later).
            timed: its events.
        """
        timed.row = row

        def done(_: Any) -> None:
            try:
                timed.end = self._cuda.event()
                timed.end.record(self._cuda.current_stream(timed.device))
                self._pending.append(timed)
            except Exception:
                reraise_of_handler()
                row.unknown()

        if work is None:
            done(None)
            return
        try:
            work.get_future().add_done_callback(done)
        except (RuntimeError, AttributeError):  # AttributeError: there is none
            self.lose(row)

    def lose(self, row: StartedCollective) -> None:
        """Note that its end cannot be known."""
        self.lost += 1
        row.unknown()

    def stop(self) -> int:
        """Read the events that the GPU has passed. Returns how many ends stay unknown."""
        try:
            if self._pending and self._cuda.ready():
                self._read()
        except Exception:
            reraise_of_handler()
        self.lost += len(self._pending)
        self._pending.clear()
        return self.lost

    def _read(self) -> None:
        while self._pending:
            first = self._pending[0]
            if not (first.end.query() and first.begin.query() and first.anchor.event.query()):
                return
            self._pending.popleft()
            row = first.row
            if row is None or row.ended:
                continue
            begun = max(
                first.anchor.host_ns + round(first.anchor.event.elapsed_time(first.begin) * 1e6),
                row.start,
            )
            took = max(round(first.begin.elapsed_time(first.end) * 1e6), 0)
            row.ended = True
            row.segment.end(
                row.place, Stage.COLLECTIVE, begun - row.start + took, begun - row.start
            )

    def _anchor(self, device: int) -> Anchor:
        anchor, uses = self._anchors.get(device, (None, _ANCHOR_EVERY))
        if anchor is None or uses >= _ANCHOR_EVERY:
            if device not in self._aside:
                self._aside[device] = self._cuda.new_stream(device)
            anchor, uses = Anchor(self._cuda.event(), self._aside[device]), 0
        self._anchors[device] = anchor, uses + 1
        return anchor
