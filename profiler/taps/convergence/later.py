"""Records numbers that a device may still be computing, once they are available. The program never waits for a GPU: the numbers are
copied to pinned memory after the kernels that compute them, and read there."""

import struct
from collections import deque
from collections.abc import Callable
from typing import Any, Protocol

import torch

from feedline.profiler import clock
from feedline.profiler.events import UNMEASURED, Stage
from feedline.profiler.record.recorder import recorder

_MOST = 64  # numbers that wait for a GPU; the oldest is given up then
_DOUBLE, _LONG, _FLOATS = struct.Struct("<d"), struct.Struct("<q"), struct.Struct("<ff")


class Counts(Protocol):
    """Progress of the training."""

    updates: int

    @property
    def samples(self) -> int: ...


class Later:
    """Writes VALUE and GRADIENT records. Args: counts: read when a number is handed over."""

    def __init__(self, counts: Counts) -> None:
        self._counts = counts
        self._waiting: deque[tuple[Any, Callable[[], None]]] = deque()

    def number(self, name: str, value: float, at: int | None = None, samples: int | None = None, updates: int | None = None) -> None:
        """Record one number of the training, as of now or of an earlier moment."""
        segment = recorder.always_on_segment()
        if segment is None:
            return
        samples = self._counts.samples if samples is None else samples
        updates = self._counts.updates if updates is None else updates
        segment.add(Stage.VALUE, at or clock.wall_ns(), 0, UNMEASURED, UNMEASURED, samples, _bits(value), updates, segment.name_id(name))

    def value(self, name: str, value: torch.Tensor) -> None:
        """The same for a tensor of one element."""
        at, samples, updates = clock.wall_ns(), self._counts.samples, self._counts.updates
        self._once(value, lambda there: self.number(name, there.item(), at, samples, updates))

    def gradient(
        self, how: str, small: torch.Tensor, big: torch.Tensor, samples: int, parts: int, ranks: int, flags: int, updates: int
    ) -> None:
        """Record the two squared norms of an update; see ``Stage.GRADIENT``."""
        at, both = clock.wall_ns(), torch.stack([small.detach(), big.detach()])

        def write(there: torch.Tensor) -> None:
            segment = recorder.main
            if segment is not None:
                (number,) = _LONG.unpack(_FLOATS.pack(*(_in_float(value) for value in there.tolist())))
                source = segment.name_id(how)
                segment.add(Stage.GRADIENT, at, 0, parts, ranks, samples, number, updates, source, flags)

        self._once(both, write)

    def read(self) -> None:
        """Record the numbers that are ready."""
        while self._waiting and self._waiting[0][0].query():
            self._waiting.popleft()[1]()
        while len(self._waiting) > _MOST:
            self._waiting.popleft()

    def stop(self) -> None:
        """Record the numbers that are ready now; the rest is lost."""
        self.read()
        self._waiting.clear()

    def _once(self, tensor: torch.Tensor, write: Callable[[torch.Tensor], None]) -> None:
        if not tensor.is_cuda:
            write(tensor)
            return
        there = torch.empty(tensor.shape, dtype=tensor.dtype, pin_memory=True)
        there.copy_(tensor, non_blocking=True)
        passed = torch.cuda.Event()
        passed.record(torch.cuda.current_stream(tensor.device))
        self._waiting.append((passed, lambda: write(there)))


def _bits(value: float) -> int:
    """A float64 as the int64 of the same bits."""
    (number,) = _LONG.unpack(_DOUBLE.pack(value))
    return int(number)


def _in_float(value: float) -> float:
    """The value as a float32; infinity if it is too large."""
    return value if abs(value) < 3e38 else value * float("inf")
