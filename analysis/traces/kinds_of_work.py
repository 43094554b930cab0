"""What an event's name says of it: is a kernel communication, does a call make the host wait, which way does a copy go."""

import re
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from feedline.analysis.traces.columns import DEVICE_WORK, Kind, Trace

BoolArray = npt.NDArray[np.bool_]

#: Kernels of libraries that do nothing but communicate.
_LIBRARIES = re.compile(
    r"^(void )?\(?nccl|^(void )?rccl|nccl(dev|x)?kernel|mscclpp|msccl[_:]|nvshmem|deep_ep::|deepep|\b(inter|intra)node(_ll)?::"
    r"|cross_device_reduce|userbuffers|symm_mem|multimem_(one_shot|all|reduce)",
    re.IGNORECASE,
)
#: Kernels of frameworks that are named after a collective: vLLM, SGLang, TensorRT-LLM, FlashInfer, torch's symmetric memory. A reduction
#: inside a warp or a block is not one of them.
_COLLECTIVES = re.compile(
    r"(?<!warp)(?<!block)(?<!quad)(?<!thread)(?<!warp_)(?<!block_)(?<!quad_)(?<!thread_)(all_?reduce|all_?gather|reduce_?scatter|all_?to_?all)",
    re.IGNORECASE,
)
#: Inductor names a fused kernel after the operators around it, collectives too; it is not a collective.
_FUSED = re.compile(r"^triton_(poi|red|per|tem|for|mm|unk)_")

#: Matrix products of float32 without tensor cores, by cuBLAS and CUTLASS. With TF32 the names have s1688gemm, or f32f32_tf32f32.
FLOAT32_PRODUCT = re.compile(r"[a-z0-9]_sgemm_\d|xmma_gemm_f32f32_f32f32_f32_")

_SYNCHRONISES = re.compile(
    r"^(cuda|hip)(Device|Stream|Event|Context|Thread)Synchronize|^(cu|hip)(Ctx|Stream|Event)Synchronize"
    r"|^(cuda|hip)(Memcpy(2D|3D|ToSymbol|FromSymbol|ToArray|FromArray)?|Memset(2D|3D)?)(_|$)|^cuMemcpy((HtoD|DtoH|DtoD)?(_v2)?)$"
    r"|^hipMemcpyWithStream|^(Context|Stream|Event) Sync(hronize)?$"
)

_COPY = re.compile(r"([HDPA])(?:ost|evice|rray)?\s?to\s?([HDPA])", re.IGNORECASE)
_MEMORY = {"pageable": "pageable", "pinned": "pinned", "page-locked": "pinned", "managed": "managed", "unified": "managed"}


def is_communication(name: str) -> bool:
    """Whether a kernel of this name moves bytes between ranks."""
    if _FUSED.match(name):
        return False
    function = re.split(r"[<(]", name.removeprefix("void "), maxsplit=1)[0] or name
    return bool(_LIBRARIES.search(name[:200]) or _COLLECTIVES.search(function))


def synchronises(name: str) -> bool:
    """Whether a call of the runtime returns only when the device is done: ``cudaStreamSynchronize``, a blocking ``cudaMemcpy``."""
    return bool(_SYNCHRONISES.search(name))


@dataclass(frozen=True, order=True)
class Copy:
    """Which way a copy goes.

    Attributes:
        direction: "HtoD", "DtoH", "DtoD", "PtoP" (between devices), "HtoH"; "": the name does not say.
        memory: "pageable", "pinned", "managed" memory on the host's side; "": there is none, or the name does not say.
    """

    direction: str
    memory: str


def copy_of(name: str) -> Copy:
    """What the name of a copy says, as in ``Memcpy HtoD (Pageable -> Device)``."""
    found = _COPY.search(name)
    direction = f"{found[1].upper()}to{found[2].upper()}" if found else ""
    lower = name.lower()
    return Copy(direction, next((meant for word, meant in _MEMORY.items() if word in lower), "") if "H" in direction else "")


def of_kinds(trace: Trace, *kinds: Kind) -> BoolArray:
    """bool [n]: the event is one of these kinds."""
    wanted = np.zeros(256, bool)
    wanted[list(kinds)] = True
    return np.asarray(wanted[trace.events["kind"]], bool)


def extent(trace: Trace) -> tuple[int, int]:
    """Begin and end, ns, of what host and device did; not of the profiler's own rows, which say how long it listened."""
    rows = np.flatnonzero(of_kinds(trace, *DEVICE_WORK, Kind.RUNTIME, Kind.OPERATOR, Kind.ANNOTATION, Kind.PYTHON))
    if not len(rows):
        return 0, 0
    start = trace.events["start"]
    return int(start[rows[0]]), int((start[rows] + trace.events["wall"][rows]).max())


def named(trace: Trace, pattern: re.Pattern[str]) -> BoolArray:
    """bool [n]: the pattern is found in the event's name."""
    return np.asarray(np.array([bool(pattern.search(name)) for name in trace.names] or [False])[trace.events["name"]], bool)


def present(numbers: npt.NDArray[np.int32]) -> list[int]:
    """Each of these numbers once, ascending. They are small: of names, or of tracks."""
    return [int(number) for number in np.flatnonzero(np.bincount(numbers))]


def on_device(trace: Trace) -> BoolArray:
    """bool [n]: what makes a device busy."""
    return of_kinds(trace, *DEVICE_WORK)


def communicates(trace: Trace) -> BoolArray:
    """bool [n]: a kernel that is communication, by its name or because the trace says so."""
    kernels = of_kinds(trace, Kind.KERNEL)
    names = np.zeros(max(len(trace.names), 1), bool)
    for name in present(trace.events["name"][kernels]):
        names[name] = is_communication(trace.names[name])
    return np.asarray(kernels & (names[trace.events["name"]] | (trace.events["collective"] >= 0)), bool)
