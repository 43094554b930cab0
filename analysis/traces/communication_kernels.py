"""Which kernels communicate, and what each does: by the names that NCCL, libraries beside it and frameworks give them."""

import functools
import re
from dataclasses import dataclass

from feedline.analysis.traces.collective_operations import MESSAGE, operation
from feedline.analysis.traces.kernel_names import function_of

_EXCHANGE, _SUM, _SCATTERED, _GATHERED, _MEETING = "all_to_all", "all_reduce", "reduce_scatter", "all_gather", "barrier"


@dataclass(frozen=True)
class _Library:
    """Kernels of one library.

    Attributes:
        name: of the library.
        functions: found in the qualified name of the function alone: what template arguments hold is of others.
        operation: that they carry out; "": the function is named after it.
        source: public repository in which such names stand.
    """

    name: str
    functions: re.Pattern[str]
    operation: str
    source: str


def _library(name: str, functions: str, operation: str, source: str) -> _Library:
    return _Library(name, re.compile(functions, re.IGNORECASE), operation, source)


#: The first that fits. docs/traces.md repeats it (tests/traces/numbers/test_communication_kernels.py).
LIBRARIES = (
    _library("NCCL", r"^(\w+::)*nccl|nccl(dev|x)?kernel", "", "NVIDIA/nccl"),
    _library("RCCL", r"^(\w+::)*rccl", "", "ROCm/rccl"),
    _library("DeepEP", r"\b(inter|intra)node(_ll)?::\w*(dispatch|combine|notify)", _EXCHANGE, "deepseek-ai/DeepEP"),
    _library("DeepEP", r"\b(inter|intra)node(_ll)?::\w*(barrier|clean_low_latency)", _MEETING, "deepseek-ai/DeepEP"),
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
    _library("Transformer Engine", r"userbuffers_(push|send|recv)", MESSAGE, "NVIDIA/TransformerEngine"),
    _library("Transformer Engine", r"userbuffers\w*_rs(_|$)", _SCATTERED, "NVIDIA/TransformerEngine"),
    _library("Transformer Engine", r"userbuffers\w*_ag(_|$)", _GATHERED, "NVIDIA/TransformerEngine"),
    _library("Transformer Engine", r"userbuffers\w*_sum", _SUM, "NVIDIA/TransformerEngine"),
    _library("Transformer Engine", r"userbuffers", "", "NVIDIA/TransformerEngine"),
    _library("MSCCL, MSCCL++", r"\bmscclpp|\bmsccl[_:]", "", "microsoft/mscclpp"),
    _library("oneCCL", r"\boneccl_|\bccl::", "", "uxlfoundation/oneCCL"),
    _library("torch, symmetric memory", r"symm_mem|multimem_(one_shot|all|reduce)", "", "pytorch/pytorch"),
    # vLLM, SGLang, TensorRT-LLM, FlashInfer, QuickReduce, torch, Triton-distributed. A reduction inside a device is not one of them.
    _library(
        "named after a collective",
        r"(?<!warp)(?<!block)(?<!quad)(?<!thread)(?<!group)(?<!grid)(?<!cluster)(?<!cta)(?<!wave)(?<!lane)"
        r"(?<!warp_)(?<!block_)(?<!quad_)(?<!thread_)(?<!group_)(?<!grid_)(?<!cluster_)(?<!cta_)(?<!wave_)(?<!lane_)"
        r"(all_?reduce|all_?gather|reduce_?scatter|all_?to_?all)",
        "",
        "flashinfer-ai/flashinfer",
    ),
)

#: Inductor names a fused kernel after the operators around it, collectives too; it is not a collective.
_FUSED = re.compile(r"^triton_(poi|red|per|tem|for|mm|unk)_")
#: Words of those that move data between ranks, and of some that sort tokens or join partial sums on one device.
_PERHAPS = frozenset("dispatch combine a2a p2p rdma ibgda nvlink nvls multimem multicast send recv sendrecv peer".split())
_WORDS = re.compile(r"[aA]2[aA]|[pP]2[pP]|[A-Z]+(?![a-z])|[A-Z]?[a-z]+")
#: What else these words stand for: kernels of torch, CUTLASS and cuDNN; attention whose keys are split; a count of tokens.
_WITHIN = re.compile(
    r"^(at|c10|cub|thrust|cutlass|cute|cudnn|cask_\w+|ck|ck_tile|rocprim|hipcub|triton)::|flash|attn|attention|split_?kv?|\bmla|mla_"
    r"|softmax|lse|merge_state|layout|permute|sort|topk|gemm",
    re.IGNORECASE,
)


@functools.lru_cache(maxsize=1 << 14)
def operation_of(name: str) -> str | None:
    """What a kernel of this name does between ranks: ``all_to_all``, ``all_reduce``, ...; None: nothing that is known.

    Of a library whose name for it says no operation, as ``ncclDevKernel_Generic_1``, its function.
    """
    if _FUSED.match(name):
        return None
    function = function_of(name)
    found = next((library for library in LIBRARIES if library.functions.search(function)), None)
    return None if found is None else found.operation or operation(function)


@functools.lru_cache(maxsize=1 << 14)
def may_communicate(name: str) -> bool:
    """Whether a kernel that no library is known for is named after something that moves data between ranks."""
    function = function_of(name)
    if _FUSED.match(name) or operation_of(name) is not None or _WITHIN.search(function):
        return False
    return not _PERHAPS.isdisjoint(word.lower() for word in _WORDS.findall(function))
