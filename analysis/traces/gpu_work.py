"""What torch.profiler's window of a recorded run says of the GPU, as a plain dataclass."""

from dataclasses import dataclass


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
