"""What an event is, by its name.

Does a kernel communicate, does a call make the host wait, which way does a copy go.
"""

import re
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from feedline.analysis.intervals import BoolArray
from feedline.analysis.traces.kernel_names import operation_of
from feedline.analysis.traces.trace_columns import DEVICE_WORK, Kind, Trace

#: Matrix products of float32 without tensor cores, by cuBLAS and CUTLASS. With TF32 the names have
#: s1688gemm, or f32f32_tf32f32.
FLOAT32_PRODUCT = re.compile(r"[a-z0-9]_sgemm_\d|xmma_gemm_f32f32_f32f32_f32_")

#: Kernels of single elementwise operators of torch, which a compiler would fuse.
ELEMENTWISE = re.compile(r"\bat::native::(\(anonymous namespace\)::)?\w*elementwise\w*_kernel")
#: Conversions that cuDNN runs around convolutions whose tensors are not in channels_last.
NCHW_TO_NHWC = re.compile(r"nchwToNhwc|nhwcToNchw", re.IGNORECASE)

_SYNCHRONISES = re.compile(
    r"^(cuda|hip)(Device|Stream|Event|Context|Thread)Synchronize|^(cu|hip)(Ctx|Stream|Event)Synchronize"
    r"|^(cuda|hip)(Memcpy(2D|3D|ToSymbol|FromSymbol|ToArray|FromArray)?|Memset(2D|3D)?)(_|$)|^cuMemcpy((HtoD|DtoH|DtoD)?(_v2)?)$"
    r"|^hipMemcpyWithStream|^(Context|Stream|Event) Sync(hronize)?$"
)

#: Ranges of torch around the collectives of backends that need no device.
_ON_HOST = re.compile(r"^(gloo|mpi|ucc):")

_COPY = re.compile(r"([HDPA])(?:ost|evice|rray)?\s?(?:to|2)\s?([HDPA])", re.IGNORECASE)
_MEMORY_KINDS = {
    "pageable": "pageable",
    "pinned": "pinned",
    "page-locked": "pinned",
    "managed": "managed",
    "unified": "managed",
}


def _synchronises(name: str) -> bool:
    """Tell whether a call of the runtime returns only when the device is done.

    ``cudaStreamSynchronize``, a blocking ``cudaMemcpy``.
    """
    return bool(_SYNCHRONISES.search(name))


@dataclass(frozen=True, order=True)
class Copy:
    """Which way a copy goes.

    Attributes:
        direction: "HtoD", "DtoH", "DtoD", "PtoP" (between devices), "HtoH"; "": the name does not
            say.
        memory: "pageable", "pinned", "managed" memory on the host's side; "": there is none, or the
            name does not say.
    """

    direction: str
    memory: str


def copy_of(name: str) -> Copy:
    """Read the name of a copy, as in ``Memcpy HtoD (Pageable -> Device)``."""
    match = _COPY.search(name)
    direction = f"{match[1].upper()}to{match[2].upper()}" if match else ""
    lower = name.lower()
    return Copy(
        direction,
        next((meant for word, meant in _MEMORY_KINDS.items() if word in lower), "")
        if "H" in direction
        else "",
    )


def of_kinds(trace: Trace, *kinds: Kind) -> BoolArray:
    """Tell which events are one of these kinds: bool [n]."""
    wanted = np.zeros(256, bool)
    wanted[list(kinds)] = True
    return np.asarray(wanted[trace.events["kind"]], bool)


def extent(trace: Trace) -> tuple[int, int]:
    """Return the begin and end, ns, of what host and device did.

    Not of the profiler's own rows, which say how long it listened.
    """
    rows = np.flatnonzero(
        of_kinds(trace, *DEVICE_WORK, Kind.RUNTIME, Kind.OPERATOR, Kind.ANNOTATION, Kind.PYTHON)
    )
    if not len(rows):
        return 0, 0
    start = trace.events["start"]
    return int(start[rows[0]]), int((start[rows] + trace.events["wall"][rows]).max())


def is_named(trace: Trace, pattern: re.Pattern[str]) -> BoolArray:
    """Tell in which events' names the pattern is found: bool [n]."""
    return np.asarray(
        np.array([bool(pattern.search(name)) for name in trace.names] or [False])[
            trace.events["name"]
        ],
        bool,
    )


def waits_for_device(trace: Trace) -> BoolArray:
    """Tell which events are calls that return only when the device is done: bool [n]."""
    return np.array([_synchronises(name) for name in trace.names] or [False])[
        trace.events["name"]
    ] & of_kinds(trace, Kind.RUNTIME, Kind.SYNC)


def present_numbers(numbers: npt.NDArray[np.int32]) -> list[int]:
    """Return each of these numbers once, ascending.

    They are small: of names, or of tracks.
    """
    return [int(number) for number in np.flatnonzero(np.bincount(numbers))]


def on_device(trace: Trace) -> BoolArray:
    """Tell which events make a device busy: bool [n]."""
    return of_kinds(trace, *DEVICE_WORK)


def communicates(trace: Trace) -> BoolArray:
    """Mark the events that are communication, bool [n].

    A kernel's name says so, or the trace does.
    """
    kernels = of_kinds(trace, Kind.KERNEL)
    names = np.zeros(max(len(trace.names), 1), bool)
    for name in present_numbers(trace.events["name"][kernels]):
        names[name] = operation_of(trace.names[name]) is not None
    return np.asarray(
        kernels & (names[trace.events["name"]] | (trace.events["collective"] >= 0)), bool
    )


def communicates_on_host(trace: Trace) -> BoolArray:
    """Tell which events are ranges around collectives that need no device: bool [n].

    They are all that a trace without a device shows of its communication.
    """
    return is_named(trace, _ON_HOST) & of_kinds(trace, Kind.ANNOTATION)
