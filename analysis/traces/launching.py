"""What a trace shows of how its host launches work: updates, compiled code, CUDA graphs."""

import re
from collections.abc import Iterable
from dataclasses import dataclass

_UPDATE = re.compile(r"^Optimizer\.step#(\w+)\.step$")
_FUSED = re.compile(r"^aten::_fused_")
_SPARSE = re.compile(r"^aten::(embedding_sparse_backward|_?sparse_)")
#: Ranges and operators of torch.compile.
_COMPILED = re.compile(r"^(Torch-Compiled Region|CompiledFunction|## Call CompiledFxGraph)")
_GRAPHS = re.compile(r"^(cuda|hip|cu)GraphLaunch")


@dataclass(frozen=True)
class Launching:
    """How the host launches work.

    Attributes:
        optimizers: classes whose updates are in the trace.
        fused: an update is made in one fused call.
        sparse: gradients are sparse.
        compiled: code that torch.compile made runs.
        graphs: CUDA graphs are replayed.
    """

    optimizers: frozenset[str] = frozenset()
    fused: bool = False
    sparse: bool = False
    compiled: bool = False
    graphs: bool = False

    @classmethod
    def of(cls, names: Iterable[str]) -> "Launching":
        """Return what the names of a trace's events show."""
        names = list(names)
        fused, sparse, compiled, graphs = (
            any(map(pattern.search, names)) for pattern in (_FUSED, _SPARSE, _COMPILED, _GRAPHS)
        )
        updates = filter(None, map(_UPDATE.search, names))
        return cls(frozenset(found[1] for found in updates), fused, sparse, compiled, graphs)


@dataclass(frozen=True)
class GpuWork:
    """What the GPU did in the steps that torch.profiler recorded.

    Attributes:
        busy_s: Time per step during which a kernel, a copy or a fill ran. Unit: s.
        kernels: Kernels per step. Unit: kernels.
        kernel_s: Mean duration of a kernel. Unit: s.
        steps: Steps that were recorded by torch.profiler. Unit: steps.
        ranks: Ranks of the training; with several, the GPU is also busy waiting for the others.
            Unit: ranks.
        float32_products_s: Time per step during which a matrix product of float32 ran that uses no
            tensor cores. Unit: s.
        device: Name of the GPU; empty if torch.profiler did not record it.
    """

    busy_s: float
    kernels: float
    kernel_s: float
    steps: int
    ranks: int = 1
    float32_products_s: float = 0.0
    device: str = ""
