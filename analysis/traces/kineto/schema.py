"""What of an event is decoded, and which kind its category means."""

import functools
import operator
from typing import Any, Final

import msgspec

from feedline.analysis.traces.columns import Kind

NONE: Final = msgspec.Raw()  # a value that is not there
Scalar = int | float | str | None


class Args(msgspec.Struct, gc=False, frozen=True):
    """The arguments that become columns. A file in which one of them has another type is read the slow way."""

    device: Scalar = None
    stream: Scalar = None
    correlation: int = -1
    bytes: int = -1
    dims: msgspec.Raw = msgspec.field(default=NONE, name="Input Dims")
    dtypes: msgspec.Raw = msgspec.field(default=NONE, name="Input type")
    name: str | None = None  # of a process or thread
    operation: Scalar = msgspec.field(default=None, name="Collective name")
    group: Scalar = msgspec.field(default=None, name="Process Group Name")
    ranks: msgspec.Raw = msgspec.field(default=NONE, name="Process Group Ranks")
    size: Scalar = msgspec.field(default=None, name="Group size")
    sequence: Scalar = msgspec.field(default=None, name="Seq")
    elements_in: Scalar = msgspec.field(default=None, name="In msg nelems")
    elements_out: Scalar = msgspec.field(default=None, name="Out msg nelems")
    dtype: Scalar = None
    first: Scalar = msgspec.field(default=None, name="Global rank start")
    stride: Scalar = msgspec.field(default=None, name="Global rank stride")


NO_ARGS: Final = Args()


class Span(msgspec.Struct, gc=False, tag_field="ph", tag="X"):
    """An event whose times a float can hold to the nanosecond. Fields stand in the order of files, in which they are found fastest."""

    cat: str = ""
    name: str = ""
    pid: int | str = ""
    tid: int | str = ""
    ts: int | float = float("nan")
    dur: int | float = 0
    args: Args = NO_ARGS


class ExactSpan(msgspec.Struct, gc=False, tag_field="ph", tag="X"):
    """An event whose times are kept as they are written."""

    cat: str = ""
    name: str = ""
    pid: int | str = ""
    tid: int | str = ""
    ts: msgspec.Raw = NONE
    dur: msgspec.Raw = msgspec.Raw(b"0")
    args: Args = NO_ARGS


class Begin(msgspec.Struct, gc=False, tag_field="ph", tag="B"):
    """One side of an event whose other side is an End."""

    cat: str = ""
    name: str = ""
    pid: int | str = ""
    tid: int | str = ""
    ts: msgspec.Raw = NONE
    args: Args = NO_ARGS


class End(msgspec.Struct, gc=False, tag_field="ph", tag="E"):
    pid: int | str = ""
    tid: int | str = ""
    ts: msgspec.Raw = NONE


class Label(msgspec.Struct, gc=False, tag_field="ph", tag="M"):
    """The name of a process or thread."""

    name: str = ""
    pid: int | str = ""
    tid: int | str = ""
    args: Args = NO_ARGS


AnySpan = Span | ExactSpan | Begin
AnyEvent = AnySpan | End | Label

#: Phases of the Trace Event Format that are of no use here: flows, instants, counters, objects, clocks. Half of a file is flows.
IGNORED = [msgspec.defstruct(f"Ignored{n}", [], gc=False, tag_field="ph", tag=phase) for n, phase in enumerate("iICbnesSfTtpFNODPRcVv(),")]
_others: Any = functools.reduce(operator.or_, IGNORED, Begin | End | Label)
FAST = msgspec.json.Decoder(list[Span | _others])
EXACT = msgspec.json.Decoder(list[ExactSpan | _others])
ONE = msgspec.json.Decoder(ExactSpan | _others)

#: Names of libkineto's ActivityType (libkineto/include/ActivityType.h, src/ActivityType.cpp), those of its first releases (2021), and
#: those of builds for other devices.
_KINDS = {
    "kernel": Kind.KERNEL,
    "concurrent_kernel": Kind.KERNEL,
    "collective_comm": Kind.KERNEL,
    "gpu_memcpy": Kind.COPY,
    "memcpy": Kind.COPY,
    "gpu_memset": Kind.SET,
    "memset": Kind.SET,
    "runtime": Kind.RUNTIME,
    "cuda_runtime": Kind.RUNTIME,
    "cuda_driver": Kind.RUNTIME,
    "hip_runtime": Kind.RUNTIME,
    "hip_driver": Kind.RUNTIME,
    "hip_api": Kind.RUNTIME,
    "glow_runtime": Kind.RUNTIME,
    "mtia_runtime": Kind.RUNTIME,
    "xpu_runtime": Kind.RUNTIME,
    "xpu_driver": Kind.RUNTIME,
    "privateuse1_runtime": Kind.RUNTIME,
    "privateuse1_driver": Kind.RUNTIME,
    "cpu_op": Kind.OPERATOR,
    "operator": Kind.OPERATOR,
    "user_annotation": Kind.ANNOTATION,
    "gpu_user_annotation": Kind.DEVICE_ANNOTATION,
    "python_function": Kind.PYTHON,
    "cuda_sync": Kind.SYNC,
    "hip_sync": Kind.SYNC,
    "xpu_sync": Kind.SYNC,
    "overhead": Kind.OVERHEAD,
    "system": Kind.SYSTEM,  # write.py's own: Kineto records none
}


def kind_of(category: str) -> Kind:
    """The kind of a category, of any version of the format; OTHER if unknown."""
    return _KINDS.get(category.lower(), Kind.OTHER)
