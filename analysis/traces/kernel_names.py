"""What an event of a trace is, by its name: a kernel, a copy, communication, synchronization."""

import functools
import re
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from feedline.analysis.intervals import BoolArray
from feedline.analysis.traces.collectives import MESSAGE, operation
from feedline.analysis.traces.trace_columns import DEVICE_WORK, Kind, Trace

_OPENING, _CLOSING = "<([{", ">)]}"
_ANONYMOUS = re.compile(r"\(anonymous namespace\)::|\{anonymous\}::|<unnamed>::|_GLOBAL__N__\w*?::")
_SUFFIX = re.compile(r"(\.kd| \[clone [^\]]*\])+$")  # of ROCm's code objects
_DIGITS = re.compile(r"\d+")
#: Itanium's mangling of a nested or a plain name: ``_ZN7deep_ep9internode8dispatchIL...``,
#: ``_Z6vecAddPf``.
_MANGLED = re.compile(r"^_ZN?K?(?=\d)")
#: Functions that say nothing of their own: which kernel it is, only their template arguments say.
_GENERIC = re.compile(
    r"^cutlass::(device_kernel|Kernel\d?)$|^at::native::.*(elementwise|reduce|index)\w*_kernel\w*$|^ck_tile::kentry$|multi_tensor_apply_kernel$"
    r"|^(at_cuda_detail::)?(cub|thrust)::|^at::cuda::detail::cub::|^hipcub::|^rocprim::"
)
#: What stands around the operation within such arguments, and the types of elements.
_AROUND_FUNCTION = re.compile(
    r"^(at::native::)?(gpu_kernel_impl(_nocast)?|ReduceOp|func_wrapper_t|[AB]UnaryFunctor|BinaryFunctor|binary_internal)$"
    r"|^TensorListMetadata|^(std|cuda::std)::array$|^at::detail::Array$"
)
_ELEMENT = re.compile(
    r"^(\(?(unsigned |signed |long |short )*(char|short|int|long|bool|float|double|half)\)?[*&]*"
    r"|(u?int|float|bfloat|double)\d*(_t)?|__half|__nv_\w+|hip_bfloat16|c10::\w+|cutlass::(half|bfloat16|tfloat32|float_e\w+)_t|true|false"
    r"|(\([\w: ]+\))?-?\d\w*)[*&]?$"
)
_EXCHANGE = "all_to_all"
_SUM = "all_reduce"
_SCATTERED = "reduce_scatter"
_GATHERED = "all_gather"
_MEETING = "barrier"
#: Inductor names a fused kernel after the operators around it, collectives too; it is not a
#: collective.
_TRITON_KERNEL = re.compile(r"^triton_(poi|red|per|tem|for|mm|unk)_")
#: Words of those that move data between ranks, and of some that sort tokens or join partial sums on
#: one device.
_PERHAPS = frozenset(
    "dispatch combine a2a p2p rdma ibgda nvlink nvls multimem multicast send recv sendrecv "
    "peer".split()
)
_WORDS_OF_NAME = re.compile(r"[aA]2[aA]|[pP]2[pP]|[A-Z]+(?![a-z])|[A-Z]?[a-z]+")
#: What else these words stand for: kernels of torch, CUTLASS and cuDNN; attention whose keys are
#: split; a count of tokens.
_WITHIN = re.compile(
    r"^(at|c10|cub|thrust|cutlass|cute|cudnn|cask_\w+|ck|ck_tile|rocprim|hipcub|triton)::|flash|attn|attention|split_?kv?|\bmla|mla_"
    r"|softmax|lse|merge_state|layout|permute|sort|topk|gemm",
    re.IGNORECASE,
)
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


def _function_of(name: str) -> str:
    """Return the qualified name of a kernel's function.

    Without return type, template arguments, parameters and unnamed namespaces.
    """
    if _strange(name):
        return name
    bare = _SUFFIX.sub("", _ANONYMOUS.sub("", name))
    if mangled := _MANGLED.match(bare):
        return "::".join(_sources(bare[mangled.end() :])) or name
    kept: list[str] = []
    depth = 0
    for letter in bare:
        if letter in _OPENING:
            if letter == "(" and not depth and kept and "".join(kept[-8:]) != "operator":
                break
            depth += 1
        elif letter in _CLOSING:
            depth -= depth > 0
        elif not depth:
            kept.append(letter)
    words = "".join(kept).split()
    return words[-1].strip(":") or name if words else name


def short_name(name: str) -> str:
    """Shorten a kernel's name to its function.

    Of a function that any kernel can be, what its template arguments say of this one stays.
    """
    function = _function_of(name)
    arguments = _said(name) if _GENERIC.search(function) else ""
    return (
        f"{function}<{arguments}>".replace("at::native::", "")
        if arguments
        else function.replace("at::native::", "")
    )


def fitting_name(name: str, most: int) -> str:
    """Shorten a kernel's name to so many letters.

    Leading namespaces go first, then a function that any kernel can be, then the middle.
    """
    text = short_name(name)
    function, bracket, arguments = text.partition("<")
    while len(text) > most and "::" in function:
        function = function.partition("::")[2]
        text = f"{function}{bracket}{arguments}"
    if len(text) > most and arguments:
        text = arguments.removesuffix(">")
    while len(text) > most and "::" in text:
        text = text.partition("::")[2]
    if len(text) <= most or _strange(text):
        return text[:most]
    begin = 2 * most // 3
    return f"{text[:begin]}…{text[len(text) - (most - begin - 1) :]}"


def _strange(name: str) -> bool:
    """Tell whether no compiler wrote it: control characters are in it, or what they are written as."""
    return "\\" in name or not name.isprintable()


def _said(text: str) -> str:
    """Return the first template argument that names an operation.

    Of those that only stand around one, the first within.
    """
    for argument in _arguments(text):
        function = _function_of(argument)
        if _AROUND_FUNCTION.search(function):
            if inner := _said(argument):
                return inner
        elif not _ELEMENT.match(argument.strip()):
            return function.removesuffix("::operator")
    return ""


def _arguments(text: str) -> Iterator[str]:
    """Yield the arguments of the first template in a text, also of one that is cut off."""
    begin = text.find("<", 1)
    depth, at = 0, begin + 1
    for place in range(begin + 1, len(text)) if begin >= 0 else ():
        letter = text[place]
        if letter in _OPENING:
            depth += 1
        elif letter in _CLOSING:
            depth -= 1
        if depth < 0 or (letter == "," and not depth):
            yield text[at:place]
            at = place + 1
        if depth < 0:
            return
    if 0 <= begin and at < len(text):
        yield text[at:]


def _sources(text: str) -> Iterator[str]:
    """Yield the identifiers of a mangled name, each behind its length."""
    while length := _DIGITS.match(text):
        end = length.end() + int(length[0])
        identifier, text = text[length.end() : end], text[end:]
        if not identifier.startswith("_GLOBAL__N"):
            yield identifier


@dataclass(frozen=True)
class _Library:
    """Kernels of one library.

    Attributes:
        name: of the library.
        functions: found in the qualified name of the function alone: what template arguments hold
            is of others.
        operation: that they carry out; "": the function is named after it.
        source: public repository in which such names stand.
    """

    name: str
    functions: re.Pattern[str]
    operation: str
    source: str


def _library(name: str, functions: str, operation: str, source: str) -> _Library:
    return _Library(name, re.compile(functions, re.IGNORECASE), operation, source)


#: The first that fits. docs/traces.md repeats it
#: (tests/traces/numbers/test_communication_kernels.py).
_COMMUNICATION_LIBRARIES = (
    _library("NCCL", r"^(\w+::)*nccl|nccl(dev|x)?kernel", "", "NVIDIA/nccl"),
    _library("RCCL", r"^(\w+::)*rccl", "", "ROCm/rccl"),
    _library(
        "DeepEP",
        r"\b(inter|intra)node(_ll)?::\w*(dispatch|combine|notify)",
        _EXCHANGE,
        "deepseek-ai/DeepEP",
    ),
    _library(
        "DeepEP",
        r"\b(inter|intra)node(_ll)?::\w*(barrier|clean_low_latency)",
        _MEETING,
        "deepseek-ai/DeepEP",
    ),
    _library("DeepEP", r"\bhybrid_ep::(dispatch|combine)", _EXCHANGE, "deepseek-ai/DeepEP"),
    _library("DeepEP", r"\bhybrid_ep::device_sync", _MEETING, "deepseek-ai/DeepEP"),
    _library("MORI", r"\bEp(Dispatch|Combine)(Inter|Intra|LowLatency)", _EXCHANGE, "ROCm/mori"),
    _library(
        "TensorRT-LLM, FlashInfer",
        r"\bmoeA2A(Prepare)?(Dispatch|Combine)Kernel|\bmoe_?CommKernel|\bmoeAll_?to_?all",
        _EXCHANGE,
        "NVIDIA/TensorRT-LLM",
    ),
    _library("NVSHMEM", r"nvshmem", "", "NVIDIA/nvshmem"),
    _library("vLLM, SGLang, AITER", r"\bcross_device_reduce", _SUM, "vllm-project/vllm"),
    _library(
        "Transformer Engine", r"userbuffers_(push|send|recv)", MESSAGE, "NVIDIA/TransformerEngine"
    ),
    _library(
        "Transformer Engine", r"userbuffers\w*_rs(_|$)", _SCATTERED, "NVIDIA/TransformerEngine"
    ),
    _library(
        "Transformer Engine", r"userbuffers\w*_ag(_|$)", _GATHERED, "NVIDIA/TransformerEngine"
    ),
    _library("Transformer Engine", r"userbuffers\w*_sum", _SUM, "NVIDIA/TransformerEngine"),
    _library("Transformer Engine", r"userbuffers", "", "NVIDIA/TransformerEngine"),
    _library("MSCCL, MSCCL++", r"\bmscclpp|\bmsccl[_:]", "", "microsoft/mscclpp"),
    _library("oneCCL", r"\boneccl_|\bccl::", "", "uxlfoundation/oneCCL"),
    _library(
        "torch, symmetric memory", r"symm_mem|multimem_(one_shot|all|reduce)", "", "pytorch/pytorch"
    ),
    # vLLM, SGLang, TensorRT-LLM, FlashInfer, QuickReduce, torch, Triton-distributed. A reduction
    # inside a device is not one of them.
    _library(
        "named after a collective",
        r"(?<!warp)(?<!block)(?<!quad)(?<!thread)(?<!group)(?<!grid)(?<!cluster)(?<!cta)(?<!wave)(?<!lane)"
        r"(?<!warp_)(?<!block_)(?<!quad_)(?<!thread_)(?<!group_)(?<!grid_)(?<!cluster_)(?<!cta_)(?<!wave_)(?<!lane_)"
        r"(all_?reduce|all_?gather|reduce_?scatter|all_?to_?all)",
        "",
        "flashinfer-ai/flashinfer",
    ),
)


@functools.lru_cache(maxsize=1 << 14)
def operation_of(name: str) -> str | None:
    """Return what a kernel of this name does between ranks; None: nothing that is known.

    ``all_to_all``, ``all_reduce``, ...
    """
    if _TRITON_KERNEL.match(name):
        return None
    function = _function_of(name)
    library_of = next(
        (library for library in _COMMUNICATION_LIBRARIES if library.functions.search(function)),
        None,
    )
    return None if library_of is None else library_of.operation or operation(function)


@functools.lru_cache(maxsize=1 << 14)
def may_communicate(name: str) -> bool:
    """Tell whether the name of a kernel of no known library says that it moves data between ranks."""
    function = _function_of(name)
    if _TRITON_KERNEL.match(name) or operation_of(name) is not None or _WITHIN.search(function):
        return False
    return not _PERHAPS.isdisjoint(word.lower() for word in _WORDS_OF_NAME.findall(function))


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
