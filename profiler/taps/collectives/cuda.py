"""Start and end of a collective on the GPU: events in its streams, read later without waiting for the GPU.

The first event goes into the current stream before the call: NCCL's own stream waits for that point (torch's ProcessGroupNCCL), so from
there on no other rank waits for this one. The second goes into the stream that a callback of the work's future is given, which waits for
NCCL's end; torch runs that callback at once, in the calling thread. A third, the anchor, in every ANCHOR_EVERY collectives, ties the GPU's
clock to the host's (taps/gpu.py). Written after torch's documentation of CUDA-aware futures; not tested where there was no GPU.

Not seen: replays of CUDA graphs; what a capture launches does not run.
"""

from collections import deque
from typing import Any

import torch

from feedline.profiler.events import Stage
from feedline.profiler.taps.collectives.ends import Row
from feedline.profiler.taps.gpu import Anchor, Cuda

_QUEUE = 4096  # collectives that the GPU has not passed
_ANCHOR_EVERY = 64  # elapsed_time is a float32 of ms: within 100 ms its steps are 8 ns, within 1,000 s 60 us


class Timed:
    """The events of one collective."""

    __slots__ = ("device", "begin", "end", "anchor", "row")

    def __init__(self, device: int, begin: Any, anchor: Anchor) -> None:
        self.device, self.begin, self.anchor = device, begin, anchor
        self.end: Any = None
        self.row: Row | None = None


class CudaEnds:
    """Times collectives on GPUs."""

    def __init__(self, cuda: Cuda | None = None) -> None:
        self._cuda = cuda or Cuda()
        self._pending: deque[Timed] = deque()
        self._anchors: dict[int, tuple[Anchor, int]] = {}
        self._aside: dict[int, Any] = {}
        self.lost = 0

    def begin(self, device: torch.device) -> Timed | None:
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
        timed = Timed(index, begin, self._anchor(index))
        begin.record(self._cuda.current_stream(index))
        return timed

    def watch(self, row: Row, work: Any, timed: Timed) -> None:
        """Mark its end. It stays unknown if the work has no future (gloo's send, collectives that NCCL launches together).

        Args:
            work: None: the caller asked for none, so NCCL has put the collective into the current stream (torch 2.8 and later).
        """
        timed.row = row

        def done(_: Any) -> None:
            try:
                timed.end = self._cuda.event()
                timed.end.record(self._cuda.current_stream(timed.device))
                self._pending.append(timed)
            except Exception:
                row.unknown()

        if work is None:
            done(None)
            return
        try:
            work.get_future().add_done_callback(done)
        except (RuntimeError, AttributeError):  # AttributeError: there is none
            self.lose(row)

    def lose(self, row: Row) -> None:
        """Its end cannot be known."""
        self.lost += 1
        row.unknown()

    def stop(self) -> int:
        """Read the events that the GPU has passed. Returns how many ends stay unknown."""
        try:
            if self._pending and self._cuda.ready():
                self._read()
        except Exception:
            pass
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
            begun = max(first.anchor.host_ns + round(first.anchor.event.elapsed_time(first.begin) * 1e6), row.start)
            took = max(round(first.begin.elapsed_time(first.end) * 1e6), 0)
            row.ended = True
            row.segment.end(row.place, Stage.COLLECTIVE, begun - row.start + took, begun - row.start)

    def _anchor(self, device: int) -> Anchor:
        anchor, uses = self._anchors.get(device, (None, _ANCHOR_EVERY))
        if anchor is None or uses >= _ANCHOR_EVERY:
            if device not in self._aside:
                self._aside[device] = self._cuda.new_stream(device)
            anchor, uses = Anchor(self._cuda.event(), self._aside[device]), 0
        self._anchors[device] = anchor, uses + 1
        return anchor
