"""A made-up GPU behind the few calls of torch.cuda that are used (profiler/taps/gpu_timer.py,
Cuda): streams that take planted times, on a clock that moves only when told to. It says nothing
about CUDA itself; what a real GPU does is tested in test_on_a_gpu.py."""

import itertools

from feedline.profiler import clock
from feedline.profiler.taps.gpu_timer import Cuda

MS = 1_000_000


class MadeUpEvent:
    """Passed once the clock is at ``at_ns``; the GPU's own clock began at another time than the
    host's.
    """

    def __init__(self, gpu: "MadeUpGpu") -> None:
        self.gpu = gpu
        self.at_ns: int | None = None
        self.device: int | None = None

    def record(self, stream: "MadeUpStream") -> None:
        assert self.device in (None, stream.device), (
            "a CUDA event belongs to the device of its first stream"
        )
        assert not self.gpu.capturing, "recorded inside a capture"
        self.gpu.host(self.gpu.mark_ms)
        self.device, self.at_ns = stream.device, max(self.gpu.now_ns, stream.busy_until_ns)

    def query(self) -> bool:
        assert self.at_ns is not None
        assert not self.gpu.capturing, "queried inside a capture"
        return self.gpu.now_ns >= self.at_ns

    def elapsed_time(self, end: "MadeUpEvent") -> float:
        assert self.query() and end.query(), "CUDA raises for events that it has not passed"
        assert self.device == end.device, "CUDA raises for events of two devices"
        assert self.at_ns is not None and end.at_ns is not None
        return (end.at_ns - self.at_ns) / 1e6


class MadeUpStream:
    def __init__(self, device: int) -> None:
        self.device, self.busy_until_ns = device, 0


class MadeUpGpu(Cuda):
    """Two devices; ``work`` launches something that takes a while."""

    def __init__(self) -> None:
        self.now_ns = 1_000 * MS
        self.initialised, self.capturing, self.broken = True, False, False
        self.mark_ms = 0.0  # what recording an event takes the host
        self.streams = [MadeUpStream(0), MadeUpStream(1)]
        self.made = itertools.count()

    def launch(self, ms: float, device: int = 0) -> None:
        stream = self.streams[device]
        stream.busy_until_ns = max(self.now_ns, stream.busy_until_ns) + round(ms * MS)

    def host(self, ms: float) -> None:
        """The host does something else for a while."""
        self.now_ns += round(ms * MS)

    def ready(self) -> bool:
        if self.broken:
            raise RuntimeError("CUDA error: an illegal memory access was encountered")
        return self.initialised and not self.capturing

    def device(self) -> int:
        return 0

    def event(self) -> MadeUpEvent:
        next(self.made)
        return MadeUpEvent(self)

    def current_stream(self, device: int) -> MadeUpStream:
        return self.streams[device]

    def new_stream(self, device: int) -> MadeUpStream:
        return MadeUpStream(device)


def on_its_clock(gpu: MadeUpGpu, monkeypatch) -> None:
    monkeypatch.setattr(clock, "wall_ns", lambda: gpu.now_ns)
