"""Traces written by hand, one line an event, in microseconds."""

from typing import Any

from traces.strategies import made

from feedline.analysis.traces.trace_columns import Kind, Shape, Trace, Track

US = 1000
MAIN = Track("1", "1")
AUTOGRAD = Track("1", "2")
WATCHDOG = Track("1", "3")
STREAM = Track("0", "7", 0)
SIDE = Track("0", "20", 0)
SECOND = Track("1", "7", 1)
LOADER = "enumerate(DataLoader)#_MultiProcessingDataLoaderIter.__next__"
NCCL = "ncclDevKernel_AllReduce_Sum_f32_RING_LL(ncclDevComm*, unsigned long, ncclWork*)"


def line(
    kind: Kind, name: str, start: float, end: float, track: Track = MAIN, **more: Any
) -> dict[str, Any]:
    """An event from ``start`` to ``end``."""
    row = {
        "kind": kind,
        "name": name,
        "start": round(start * US),
        "wall": round(end * US) - round(start * US),
        "track": track,
    }
    return {**row, "correlation": -1, "nbytes": -1, "shape": None, "collective": None, **more}


def kernel(
    start: float, end: float, name: str = "gemm", track: Track = STREAM, **more: Any
) -> dict[str, Any]:
    return line(Kind.KERNEL, name, start, end, track, **more)


def said(name: str, start: float, end: float, track: Track = MAIN, **more: Any) -> dict[str, Any]:
    return line(Kind.ANNOTATION, name, start, end, track, **more)


def operator(
    name: str,
    start: float,
    end: float,
    track: Track = MAIN,
    sizes: Any = None,
    dtype: str = "float",
    **more: Any,
) -> dict[str, Any]:
    shape = Shape(tuple(sizes), (dtype,) * len(sizes)) if sizes is not None else None
    return line(Kind.OPERATOR, name, start, end, track, shape=shape, **more)


def call(name: str, start: float, end: float, track: Track = MAIN, **more: Any) -> dict[str, Any]:
    return line(Kind.RUNTIME, name, start, end, track, **more)


def trace(*rows: dict[str, Any]) -> Trace:
    """A trace of these lines."""
    return made(rows, rank=None, world_size=None, origin_ns=0)
